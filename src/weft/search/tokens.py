"""Token retrieval (XTR eq. 3): the k′ most similar document tokens of each query token, over any number of documents.

Documents come a few thousand tokens at a time, so memory is n·k′ whatever the corpus is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.search.imputed import Imputed, score_hits
from weft.storage.segments import Allowed, Found, Plan, Segment, Terms, in_parts
from weft.types import Hits, TokenVectors


def search_tokens(
    query: TokenVectors,
    plan: Plan,
    segments: Sequence[Segment],
    allowed: Sequence[Allowed],
    ranked: Sequence[NDArray[np.bool_]] | None,
) -> list[Found]:
    """Score from retrieved tokens alone (XTR eq. 4), over all segments together; return what that found in each."""
    assert isinstance(plan.alignment, XTR)
    pairs = list(zip(segments, allowed, strict=True))
    ordinals = [segment.worth_comparing(query, plan, a) for segment, a in pairs]
    tokens = sum(
        segment.n_tokens if a.mask is None else int(np.diff(segment.offsets)[a.mask].sum()) for segment, a in pairs
    )
    parts = (
        segment.comparable(query, some)
        for segment, o in zip(segments, ordinals, strict=True)
        for some in in_parts(segment, o)
    )
    hits, last = retrieve_tokens(query.n_tokens, parts, plan.alignment.retrieves(tokens))
    empty = np.zeros(0, np.int64)
    lengths = [np.diff(segment.offsets)[o] for segment, o in zip(segments, ordinals, strict=True)]
    imputed = score_hits(hits, last, np.concatenate([empty, *lengths]), plan.alignment)
    owner = np.repeat(np.arange(len(segments)), [len(o) for o in ordinals])[imputed.documents]
    places = np.concatenate([empty, *ordinals])[imputed.documents]
    found = []
    for position in range(len(segments)):
        mine = np.flatnonzero(owner == position)
        if ranked is not None:
            mine = mine[ranked[position][places[mine]]]
        found.append(Found(places[mine], imputed.scores[mine], np.inf, _terms_of(imputed, mine)))
    return found


def _terms_of(imputed: Imputed, mine: NDArray[np.int64]) -> Any:
    def terms(positions: NDArray[np.int64]) -> list[Terms]:
        return [Terms(imputed.pairs(at), float(imputed.z[at])) for at in mine[positions].tolist()]

    return terms


def retrieve_tokens(
    n: int, parts: Iterable[tuple[TokenVectors, TokenVectors]], k_prime: int
) -> tuple[Hits, NDArray[np.float32]]:
    """Return the hits, and each query token's last retrieved similarity, shape (n,).

    Parameters
    ----------
    n : int
        Number of query tokens.
    parts : iterable of (query, documents)
        Some documents, and the query of n tokens in the space of their vectors. `Hits.document` counts documents from 0
        through all parts. Of equal similarities the first tokens are taken.
    k_prime : int

    Examples
    --------
    >>> query = TokenVectors.from_list([np.eye(2)])
    >>> documents = [TokenVectors.from_list([[[0.9, 0.6], [0.1, 0.5]]]), TokenVectors.from_list([[[0.7, 0.3]]])]
    >>> hits, last = retrieve_tokens(2, [(query, part) for part in documents], k_prime=2)
    >>> hits.document.tolist(), [round(float(x), 2) for x in last]
    ([0, 1, 0, 0], [0.7, 0.5])
    """
    similarity: NDArray[Any] = np.empty((n, 0), dtype=np.float32)
    document: NDArray[Any] = np.empty((n, 0), dtype=np.int64)
    token: NDArray[Any] = np.empty((n, 0), dtype=np.int32)
    base = 0
    for query, part in parts:
        # (n, kept + new): what was kept so far stands first, so that equal newcomers do not displace it.
        similarity = np.concatenate([similarity, query.values @ part.values.astype(np.float32, copy=False).T], axis=1)
        owner = np.repeat(np.arange(len(part)), part.lengths)
        document = np.concatenate([document, np.broadcast_to(base + owner, (n, part.n_tokens))], axis=1)
        position = (np.arange(part.n_tokens) - part.offsets[owner]).astype(np.int32)
        token = np.concatenate([token, np.broadcast_to(position, (n, part.n_tokens))], axis=1)
        base += len(part)
        if similarity.shape[1] > k_prime:
            best = largest(similarity, k_prime)
            similarity, document, token = (np.take_along_axis(a, best, axis=1) for a in (similarity, document, token))
    order = np.argsort(-similarity, axis=1, kind="stable")
    similarity, document, token = (np.take_along_axis(a, order, axis=1) for a in (similarity, document, token))
    kept = similarity.shape[1]
    hits = Hits(np.repeat(np.arange(n, dtype=np.int32), kept), document.ravel(), token.ravel(), similarity.ravel())
    return hits, similarity[:, -1] if kept else np.zeros(n, dtype=np.float32)


def largest(values: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return where the k largest values of each row stand, (rows, k), ascending; of equal values the first.

    Examples
    --------
    >>> largest(np.array([[3.0, 1.0, 2.0, 3.0, 2.0]]), 3).tolist()
    [[0, 2, 3]]
    """
    chosen = np.sort(np.argpartition(-values, k - 1, axis=1)[:, :k], axis=1)
    found = np.take_along_axis(values, chosen, axis=1)
    last = found.min(axis=1, keepdims=True)
    equal = values == last
    for row in np.flatnonzero(equal.sum(axis=1) > (found == last).sum(axis=1)):  # more of them than fit
        above = np.flatnonzero(values[row] > last[row])
        chosen[row] = np.sort(np.concatenate([above, np.flatnonzero(equal[row])[: k - len(above)]]))
    return chosen
