"""``weft generative explain``: the alignment of a query with a text, in a generative or multi-vector T5."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from weft.cli.answers import Html, PairsListed, readable, show_explanations
from weft.cli.generative import begin_torch
from weft.cli.opening import Json
from weft.errors import DataError

if TYPE_CHECKING:
    from weft.explain import Explanation, Reading


def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that weft generative or experiment trained.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is looked for.")],
    document: Annotated[str, typer.Argument(metavar="TEXT", help="The document's text; - reads stdin.")],
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens that a generative model is asked for; by default as many as in training."),
    ] = None,
    pairs: PairsListed = 12,
    html: Html = None,
    json_: Json = False,
) -> None:
    """Show which words of QUERY a model aligns with which words of TEXT.

    Of a generative model: the part of the logits that cross-attention adds, Σ S∘A over all heads, for the part of TEXT
    that it would say for QUERY.
    """
    query, text = readable(query, "query"), readable(sys.stdin.read() if document == "-" else document, "text")
    begin_torch("explaining")
    found = [_multivector(model, query, text) if _is_multivector(model) else _generative(model, query, text, tokens)]
    show_explanations(found, html, json_, pairs)


def _is_multivector(folder: Path) -> bool:
    from weft.generative.model import read_settings

    return "alignment" in read_settings(folder)


def _generative(folder: Path, query: str, text: str, tokens: int | None) -> Explanation:
    from weft.explain import explain as taken_apart
    from weft.generative.model import GenerativeModel
    from weft.generative.reranking import SpanReader

    model = GenerativeModel.load(folder)
    if model.table is not None:
        raise DataError(f"the identifiers of {str(folder)!r} are no text: explain reads models that say tokens of T5")
    reader = SpanReader(model, {"text": text}, spans=1, length=tokens)
    (begin, end), *_ = reader.spans(query, "text")
    traced, _ = reader.trace(query, ["text"])
    cross, whole = traced.parts["cross-attention"].sum().item(), traced.logit.sum().item()
    said = f"attention: {cross:.3f} of logits that sum to {whole:.3f}"
    asked = _reading(model, query, reader.query(query))
    answered = _reading(model, text, reader.tokens("text"), begin, end)
    return taken_apart(traced.ranking(0, "text"), 0, query=asked, document=answered, alignment=said)


def _multivector(folder: Path, query: str, text: str) -> Explanation:
    from weft.alignment import aligned
    from weft.explain import explain as taken_apart
    from weft.generative.multivector import MultiVectorModel
    from weft.generative.relevance import ranking_of
    from weft.generative.reranking import VectorReader

    model = MultiVectorModel.load(folder)
    reader = VectorReader(model, {"text": text})
    asked, (D, ids) = reader.query(query), reader.document("text")
    assert asked.token_ids is not None
    terms = aligned(asked[0], D, model.alignment)
    ranking = ranking_of(np.asarray(terms.similarity), np.asarray(terms.alignment), float(terms.z), "text")
    return taken_apart(
        ranking,
        0,
        query=_reading(model, query, asked.token_ids.tolist()),
        document=_reading(model, text, ids.tolist()),
        alignment=model.alignment,
    )


def _reading(model: Any, text: str, ids: Sequence[int], begin: int = 0, end: int | None = None) -> Reading:
    """Return the tokens of a text from `begin` to `end`, with the part of the text they stand in."""
    from weft.explain import Reading

    offsets = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    spans = [_bare(text, *offsets[i]) if i < len(offsets) and ids[i] != 1 else (-1, -1) for i in range(len(ids))]
    spans, ids = spans[begin:end], list(ids)[begin:end]
    placed = [span for span in spans if span[0] >= 0]
    first, last = (placed[0][0], placed[-1][1]) if placed else (0, 0)
    moved = np.array([(a - first, b - first) if a >= 0 else (-1, -1) for a, b in spans], np.int32)
    return Reading(text[first:last], len(ids), moved, model.tokenizer.convert_ids_to_tokens(ids))


def _bare(text: str, begin: int, end: int) -> tuple[int, int]:
    """Leave the space out that some tokenizers count to the token after it."""
    while begin < end and text[begin].isspace():
        begin += 1
    return begin, end
