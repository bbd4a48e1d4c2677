"""Searching: query → token retrieval → imputed score → refinement → `Ranking`."""

from weft.search.index import Index
from weft.search.searcher import Answer, Searcher

__all__ = ["Answer", "Index", "Searcher"]
