"""Why a generative retriever found a document: the identifier that it decoded, taken apart.

- SEAL: the score is a sum over n-grams; each is shown on the words of the document that it stands on.
- GENRE, NP-decoding: the title, token by token; DSI, PAWA: clusters and the document's place in its leaf, digit by
  digit. What is shown is the part of the logits that cross-attention adds, Σ S∘A over all heads (eq. 14), beside their
  sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from weft.errors import DataError
from weft.explain import Explanation, Reading, explain
from weft.generative.answers import DecodedRanking
from weft.generative.beam import beam_search
from weft.generative.model import EOS, GenerativeModel
from weft.generative.relevance import trace
from weft.generative.retriever import Retriever
from weft.generative.trie import ClusterTrie, Trie


def explain_decoded(
    retriever: Retriever,
    query: str,
    k: int = 1,
    *,
    id: str | None = None,  # noqa: A002
    beams: int = 15,
) -> list[Explanation]:
    """Explain the k best documents for a query, or the document `id`.

    Parameters
    ----------
    retriever : Retriever
    query : str
    k : int
    id : str, optional
        A document, found or not; for SEAL one that holds some of the n-grams decoded.
    beams : int
        As for `Retriever.search`.
    """
    if id is not None and retriever.get(id) is None:
        raise DataError(f"the index has no document {id!r}")
    if retriever.index.method == "seal":
        (ranking,) = retriever.search([query], k if id is None else len(retriever.index), beams=beams)
        if id is not None and id not in ranking.ids:
            raise DataError(f"no n-gram that was decoded for the query stands in {id!r}")
        places = range(len(ranking)) if id is None else [ranking.ids.index(id)]
        return [_ngrams(retriever, ranking, place) for place in places]
    if id is None:
        (ranking,) = retriever.search([query], k, beams=beams)
        return [_identifier(retriever, query, name, rank) for rank, name in enumerate(ranking.ids, 1)]
    return [_identifier(retriever, query, id, None)]


def _ngrams(retriever: Retriever, ranking: DecodedRanking, place: int) -> Explanation:
    document = retriever.get(ranking.ids[place])
    assert document is not None
    assert ranking.hits is not None
    # Only the n-grams of this document are shown: the hits count those of all results.
    hits, said = ranking.hits[place], ranking.said[place]
    numbers, which = np.unique(hits.query_token, return_inverse=True)
    adds = np.zeros(len(numbers))
    np.add.at(adds, which, ranking.contributions(place))
    order = np.argsort(-adds, kind="stable")
    new = np.empty(len(order), np.int32)
    new[order] = np.arange(len(order), dtype=np.int32)
    texts = [one.text for one in said]
    mine = DecodedRanking(
        [document.id],
        ranking.scores[place : place + 1],
        [type(hits)(**{**vars(hits), "query_token": new[which]})],
        z=None if ranking.z is None else ranking.z[place : place + 1],
    )
    return explain(
        mine,
        0,
        query=_joined(texts, " · "),
        document=reading(retriever.model, document.text, _tokens(retriever.model, document.text)),
        alignment="seal: n-grams by their weight and cover",
        rank=place + 1,
    )


def _identifier(retriever: Retriever, query: str, name: str, rank: int | None) -> Explanation:
    model, document = retriever.model, retriever.get(name)
    assert document is not None
    identifier = retriever.identifier(name)
    asked = retriever.query_ids([query])[0]
    target = [*_said(model, asked, identifier), EOS]
    with torch.no_grad():
        encoded = model.encode([asked])
    traced = trace(model, encoded, [target])
    log_p = float(traced.log_p[0, : len(target)].sum())
    cross, whole = traced.parts["cross-attention"].sum().item(), traced.logit.sum().item()
    if retriever.index.method == "dsi":
        digits = [str(digit) for digit in retriever.digits(identifier)]
        answered = _joined([*digits, "end"], " ")
    else:
        answered = reading(model, document.text, [*_tokens(model, document.text)[: len(identifier)], EOS])
    return explain(
        traced.ranking(0, name),
        0,
        query=reading(model, query, asked),
        document=answered,
        alignment=f"attention: {cross:.3f} of logits that sum to {whole:.3f}, log p {log_p:.3f}",
        rank=rank,
    )


def _said(model: GenerativeModel, asked: Sequence[int], identifier: Sequence[int]) -> list[int]:
    """Return an identifier in the decoder's vocabulary: with NP-decoding the likeliest clusters of its tokens."""
    if model.token_of is None:
        return list(identifier)
    token_of = model.token_of.cpu().numpy()
    only = ClusterTrie(Trie([identifier]), token_of)
    (found,) = beam_search(model, [asked], only, beams=1, length=len(identifier), end=EOS, says=token_of)
    if not found.keys:
        raise DataError("the model has no vector for a token of the document's title: it cannot be decoded")
    return list(next(iter(found.keys)))


def _tokens(model: Any, text: str) -> list[int]:
    found: list[int] = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


def _joined(texts: Sequence[str], between: str) -> Reading:
    """Return a reading whose tokens are whole texts."""
    spans, begin = [], 0
    for text in texts:
        spans.append((begin, begin + len(text)))
        begin += len(text) + len(between)
    return Reading(between.join(texts), len(texts), np.array(spans, np.int32).reshape(-1, 2), list(texts))


def reading(model: Any, text: str, ids: Sequence[int], begin: int = 0, end: int | None = None) -> Reading:
    """Return the tokens of a text from `begin` to `end`, with the part of the text they stand in."""
    offsets = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    spans = [_bare(text, *offsets[i]) if i < len(offsets) and ids[i] != EOS else (-1, -1) for i in range(len(ids))]
    spans, ids = spans[begin:end], list(ids)[begin:end]
    placed = [span for span in spans if span[0] >= 0]
    first, last = (placed[0][0], placed[-1][1]) if placed else (0, 0)
    moved = np.array([(a - first, b - first) if a >= 0 else (-1, -1) for a, b in spans], np.int32).reshape(-1, 2)
    return Reading(text[first:last], len(ids), moved, model.tokenizer.convert_ids_to_tokens(ids))


def _bare(text: str, begin: int, end: int) -> tuple[int, int]:
    """Leave out the space that some tokenizers count as part of the next token."""
    while begin < end and text[begin].isspace():
        begin += 1
    return begin, end
