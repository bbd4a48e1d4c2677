"""``weft generative explain``: what an index decoded for a query, or how a model aligns it with a text."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from weft.cli.answers import Html, PairsListed, readable, show_explanations
from weft.cli.generative import begin_torch
from weft.cli.opening import Json
from weft.errors import DataError

if TYPE_CHECKING:
    from weft.explain import Explanation


def explain(
    place: Annotated[
        Path, typer.Argument(metavar="INDEX|MODEL", help="An index made by weft generative index, or a trained model.")
    ],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    document: Annotated[
        str | None,
        typer.Argument(
            metavar="ID|TEXT",
            help="With an index, a document's id (default: the best result); with a model, a text; - reads stdin.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="With an index: explain this many of the best documents.")] = 1,
    beams: Annotated[int, typer.Option(min=1, help="With an index: hypotheses kept while decoding.")] = 15,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens that a generative model decodes; by default as many as in training."),
    ] = None,
    pairs: PairsListed = 12,
    html: Html = None,
    json_: Json = False,
) -> None:
    """Show why INDEX finds a document for QUERY, or which words of QUERY a MODEL aligns with which words of TEXT.

    An index shows what it decoded: SEAL's n-grams with what each adds to the score, or the title or digits of the other
    methods with what cross-attention adds to their logits, Σ S∘A over all heads. A model shows the same for the part of
    TEXT that it would decode for QUERY.
    """
    query = readable(query, "query")
    begin_torch("explaining")
    from weft.generative.store import INFO

    if (place / INFO).is_file():
        if tokens is not None:
            raise DataError("--tokens is for a model and a text; an index shows what it decoded")
        from weft.generative.explaining import explain_decoded
        from weft.generative.retriever import Retriever

        with Retriever.open(place) as retriever:
            found = explain_decoded(retriever, query, k, id=document, beams=beams)
        show_explanations(found, html, json_, pairs)
        return
    if document is None:
        raise DataError(f"{str(place)!r} is not an index: give the text to explain too")
    text = readable(sys.stdin.read() if document == "-" else document, "text")
    made = _multivector if _is_multivector(place) else partial(_generative, tokens=tokens)
    show_explanations([made(place, query, text)], html, json_, pairs)


def _is_multivector(folder: Path) -> bool:
    from weft.generative.model import read_settings

    return "alignment" in read_settings(folder)


def _generative(folder: Path, query: str, text: str, tokens: int | None = None) -> Explanation:
    from weft.explain import explain as taken_apart
    from weft.generative.explaining import reading
    from weft.generative.model import GenerativeModel
    from weft.generative.reranking import SpanReader

    model = GenerativeModel.load(folder)
    if model.table is not None:
        raise DataError(
            f"the identifiers of {str(folder)!r} are not text: make an index (weft generative index) and explain that"
        )
    if model.settings.get("method") == "genre":
        raise DataError(
            f"{str(folder)!r} decodes titles, not text: make an index (weft generative index) and explain that"
        )
    reader = SpanReader(model, {"text": text}, spans=1, length=tokens)
    (begin, end), *_ = reader.spans(query, "text")
    traced, _ = reader.trace(query, ["text"])
    cross, whole = traced.parts["cross-attention"].sum().item(), traced.logit.sum().item()
    said = f"attention: {cross:.3f} of logits that sum to {whole:.3f}"
    asked = reading(model, query, reader.query(query))
    answered = reading(model, text, reader.tokens("text"), begin, end)
    return taken_apart(traced.ranking(0, "text"), 0, query=asked, document=answered, alignment=said)


def _multivector(folder: Path, query: str, text: str) -> Explanation:
    from weft.alignment import aligned
    from weft.explain import explain as taken_apart
    from weft.generative.explaining import reading
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
        query=reading(model, query, asked.token_ids.tolist()),
        document=reading(model, text, ids.tolist()),
        alignment=model.alignment,
    )
