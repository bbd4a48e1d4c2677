"""Why a document was found: the token pairs behind a score, for the terminal, as a page, as JSON.

Everything shown is what the search summed (`Ranking.hits`, `Ranking.z`); nothing is computed a second time.
"""

from weft.explain.as_json import SCHEMA, to_dict, to_json
from weft.explain.explanation import Explanation, Pair, Reading, Side, Token, explain
from weft.explain.page import to_html
from weft.explain.reading import explain_result, read_document, read_query

__all__ = [
    "SCHEMA",
    "Explanation",
    "Pair",
    "Reading",
    "Side",
    "Token",
    "explain",
    "explain_result",
    "read_document",
    "read_query",
    "to_dict",
    "to_html",
    "to_json",
]
