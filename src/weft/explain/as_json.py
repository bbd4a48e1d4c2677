"""An explanation as JSON: the schema ``weft.explanation/1``, described in docs/guides/explanations.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.explain.explanation import Explanation, Side
from weft.explain.printable import json_line

SCHEMA = "weft.explanation/1"
"""Fields may be added under this name; if existing ones change, the name changes."""


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Return plain dictionaries and lists."""
    return {
        "schema": SCHEMA,
        **({"parts": dict(explanation.parts)} if explanation.parts else {}),
        "id": explanation.id,
        "rank": explanation.rank,
        "score": explanation.score,
        "z": explanation.z,
        "alignment": explanation.alignment,
        "query": _side(explanation.query),
        "document": _side(explanation.document),
        "pairs": [
            {
                "query": pair.query,
                "document": pair.document,
                "similarity": pair.similarity,
                "weight": pair.weight,
                "contribution": pair.contribution,
                "imputed": pair.document is None,
            }
            for pair in explanation.pairs
        ],
    }


def to_json(explanations: Sequence[Explanation]) -> str:
    """Return JSON lines, one for each explanation."""
    lines = [json_line(to_dict(explanation), allow_nan=False) for explanation in explanations]
    return "".join(line + "\n" for line in lines)


def _side(side: Side) -> dict[str, Any]:
    return {
        "text": side.text,
        "tokens": [
            {
                "text": token.text,
                "span": None if token.span is None else list(token.span),
                "salience": token.salience,
                "contribution": token.contribution,
            }
            for token in side.tokens
        ],
    }
