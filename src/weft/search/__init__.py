"""Searching: query → token retrieval → imputed score → refinement → `Ranking`."""

from weft.search.index import Index

__all__ = ["Index"]
