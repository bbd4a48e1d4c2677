"""``weft explain``: why documents were found."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.answers import (
    AlignmentOption,
    BetaQ,
    Exact,
    FilterOption,
    Fusion,
    FusionOption,
    Html,
    Hybrid,
    PairsListed,
    Settings,
    Weights,
    readable,
    show_explanations,
    warn_of_missing,
)
from weft.cli.opening import (
    Damage,
    IndexPath,
    Json,
    Model,
    OnDamage,
    Queries,
    QueryEncoder,
    id_of,
    no_document,
)
from weft.text_index import TextIndex


def explain(
    index: IndexPath,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    doc: Annotated[
        str | None, typer.Option("--doc", "-d", metavar="ID", help="This document; by default the best one.")
    ] = None,
    k: Annotated[int, typer.Option("-k", "--top", min=1, help="Explain this many of the best documents.")] = 1,
    alignment: AlignmentOption = None,
    filter_: FilterOption = None,
    exact: Exact = False,
    beta_q: BetaQ = None,
    hybrid: Hybrid = False,
    fusion: FusionOption = Fusion.blend,
    weights: Weights = None,
    pairs: PairsListed = 12,
    html: Html = None,
    json_: Json = False,
    model: Model = None,
    query_encoder: Queries = QueryEncoder.full,
    on_damage: OnDamage = Damage.stop,
) -> None:
    """Show why documents were found.

    Prints which words of QUERY met which words of a document, and what each pair added to its score. With --hybrid the
    documents are those of a hybrid search, with the parts of each blended score.
    """
    query, doc = readable(query, "query"), None if doc is None else readable(doc, "document's id")
    settings = Settings(k, alignment, filter_, exact, beta_q, fusion.value if hybrid else None, weights=weights)
    settings.check()
    asking, damage = query_encoder.value, on_damage.value
    with (
        TextIndex.open(index, model=model, query=asking, on_damage=damage) as opened,
        opened.index.view() as view,
    ):
        warn_of_missing(view.missing, index)
        if doc is not None:
            doc = id_of(opened, doc)
            if not opened.family(doc):
                raise no_document(opened, doc, index)
        found = opened.explain(query, k, id=doc, **settings.searched)
    show_explanations(found, html, json_, pairs)
