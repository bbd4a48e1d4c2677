"""Generative retrieval: documents found by decoding what identifies them."""
