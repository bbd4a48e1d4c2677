"""Texts in: files, folders and streams as documents; test collections with queries and judgements; the demo's."""
