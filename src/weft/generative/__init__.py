"""Generative retrieval: documents are found by decoding identifiers of them."""
