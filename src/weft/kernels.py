"""Fast scoring of many ragged documents on the CPU: `weft._native` with checks and a normaliser.

The same numbers as `weft.score` for sum-of-max, top-k and top-p, without padding, without the matrix S
in memory, and with the instructions of the machine it runs on (`simd_level`). The environment variable
``WEFT_SIMD`` (``baseline``, ``avx2``, ``avx512``, ``avx512vnni``, ``neon`` or ``neondot``), read at the first call,
chooses others.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.alignment import Alignment, SumOfMax, TopK, TopP
from weft.alignment.base import LEAST_Z
from weft.checks import check_count
from weft.errors import UnsupportedCPUError, invalid
from weft.types import Hits, TokenVectors

__all__ = ["aligned_pairs", "knows", "score_ragged", "simd_level", "simd_levels", "similarities"]

_INT32_MAX = 2**31 - 1


def simd_level() -> str:
    """Return the instructions in use, one of `simd_levels`.

    ``"baseline"``, ``"avx2"``, ``"avx512"``, ``"avx512vnni"``, ``"neon"`` or ``"neondot"`` (NEON with its dot product).
    The best that the processor and the operating system support, unless ``WEFT_SIMD`` names another one.

    Raises
    ------
    UnsupportedCPUError
        If ``WEFT_SIMD`` names a level that does not exist or that this machine cannot run.

    Examples
    --------
    >>> simd_level() in simd_levels()
    True
    """
    try:
        return _native.simd_level()
    except RuntimeError as error:
        raise UnsupportedCPUError(str(error)) from None


def simd_levels() -> tuple[str, ...]:
    """Return the levels that this machine and this build support, the best one last.

    Examples
    --------
    >>> simd_levels()[0]
    'baseline'
    """
    return tuple(_native.simd_levels())


def knows(alignment: Alignment) -> bool:
    """Tell whether the kernels compute an alignment; `weft.score` computes all of them.

    Examples
    --------
    >>> knows(Alignment.parse("top-k:2")), knows(Alignment.parse("da:1"))
    (True, False)
    """
    return isinstance(alignment, SumOfMax | TopK | TopP)


def score_ragged(
    queries: TokenVectors,
    documents: TokenVectors,
    alignment: Alignment | str = "sum-of-max",
    *,
    threads: int = 1,
    full_lengths: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """Score every document for every query: rel(Q, D) = 1/Z · Σ S∘A (ALIGNER eq. 1-2).

    Parameters
    ----------
    queries, documents : TokenVectors
        Of one dimension, float32 or float16; similarities are summed in float32. Saliences, where a side has
        them, weigh its tokens but do not change which pairs are selected.
    alignment : SumOfMax, TopK or TopP, or a string such as ``"sum-of-max"``, ``"top-k:4"``, ``"top-p:0.015"``
        Among equal similarities the first document token is selected.
    threads : int
        How many threads share the documents. The scores are the same to the last bit for any number.
    full_lengths : array of int, shape (documents,), optional
        How many tokens documents had before they were pruned: what top-p counts (ALIGNER §3.1).

    Returns
    -------
    array of float32, shape (queries, documents)
        0 where the query or the document is empty, or where Z is 0.

    Examples
    --------
    >>> import numpy as np
    >>> queries = TokenVectors.from_list([np.array([[1.0, 0.0], [0.0, 1.0]])])
    >>> documents = TokenVectors.from_list([np.array([[0.5, 0.0], [-1.0, 0.25]]), np.zeros((0, 2))])
    >>> score_ragged(queries, documents)
    array([[0.75, 0.  ]], dtype=float32)
    >>> score_ragged(queries, documents, "top-k:2")  # Z = ΣA = 4 pairs
    array([[-0.0625,  0.    ]], dtype=float32)
    """
    owner = "score_ragged"
    _check_dimensions(queries, documents, "queries", owner)
    check_count(threads, "threads", owner)
    chosen, k = _selection(alignment, documents.lengths, owner, full_lengths)
    simd_level()  # an unsupported WEFT_SIMD must not reach the kernels

    shape = (len(queries), len(documents))
    out = np.empty(shape, dtype=np.float32)
    mass = np.empty(shape, dtype=np.float32) if chosen.z == "sum" else None
    _native.score(
        _float32(queries),
        queries.offsets,
        queries.salience,
        documents.values,
        documents.offsets,
        documents.salience,
        k,
        out,
        mass,
        min(threads, len(documents) + 1),  # more could find nothing to do
    )
    if mass is not None:
        return _divide(out, np.maximum(mass, LEAST_Z, out=mass, where=mass > 0))
    if chosen.z == "query":
        return _divide(out, queries.lengths.astype(np.float32)[:, None])
    return out


def similarities(query: TokenVectors, documents: TokenVectors) -> NDArray[np.float32]:
    """Return S of one query with all tokens of some documents, shape (n, tokens).

    A similarity depends on its two tokens alone, to the last bit, and not on what lies beside them, as that of a matrix
    product does: an index and its parts find the same.

    Examples
    --------
    >>> import numpy as np
    >>> query = TokenVectors.from_list([np.array([[1.0, 0.0], [0.0, 1.0]])])
    >>> similarities(query, TokenVectors.from_list([np.array([[0.5, 0.0]]), np.array([[-1.0, 0.25]])]))
    array([[ 0.5 , -1.  ],
           [ 0.  ,  0.25]], dtype=float32)
    """
    owner = "similarities"
    _check_dimensions(query, documents, "query", owner)
    if len(query) != 1:
        raise invalid("query", owner, "a TokenVectors with one text", query)
    simd_level()
    out = np.empty((query.n_tokens, documents.n_tokens), dtype=np.float32)
    _native.similarities(_float32(query), documents.values, documents.offsets, out)
    return out


def aligned_pairs(
    query: TokenVectors,
    documents: TokenVectors,
    alignment: Alignment | str = "sum-of-max",
    *,
    full_lengths: NDArray[np.int64] | None = None,
) -> list[Hits]:
    """Return the token pairs that `score_ragged` sums over, one `Hits` for each document.

    The pairs are in the order of the query tokens, the most similar first. Saliences are not in the
    similarities: Σ u_i u_j S_ij over the pairs, divided by Z, is the score.

    Parameters
    ----------
    query : TokenVectors
        A single text.
    documents : TokenVectors
        Of the query's dimension.
    alignment : SumOfMax, TopK or TopP, or its string
        As for `score_ragged`.
    full_lengths : array of int, optional
        As for `score_ragged`.

    Examples
    --------
    >>> import numpy as np
    >>> query = TokenVectors.from_list([np.array([[1.0, 0.0], [0.0, 1.0]])])
    >>> documents = TokenVectors.from_list([np.array([[0.5, 0.0], [-1.0, 0.25]])])
    >>> (hits,) = aligned_pairs(query, documents)
    >>> hits.query_token.tolist(), hits.document_token.tolist(), hits.similarity.tolist()
    ([0, 1], [0, 1], [0.5, 0.25])
    """
    owner = "aligned_pairs"
    _check_dimensions(query, documents, "query", owner)
    if len(query) != 1:
        raise invalid("query", owner, "a TokenVectors with one text", query)
    _, k = _selection(alignment, documents.lengths, owner, full_lengths)
    simd_level()

    per_document = query.n_tokens * (np.minimum(documents.lengths, 1) if k is None else k.astype(np.int64))
    starts = np.concatenate([[0], np.cumsum(per_document)]).astype(np.int64)
    query_token = np.empty(starts[-1], dtype=np.int32)
    document_token = np.empty(starts[-1], dtype=np.int32)
    similarity = np.empty(starts[-1], dtype=np.float32)
    _native.align(
        _float32(query),
        documents.values,
        documents.offsets,
        k,
        starts,
        query_token,
        document_token,
        similarity,
    )
    document = np.repeat(np.arange(len(documents), dtype=np.int64), per_document)
    parts = [slice(a, b) for a, b in pairwise(starts)]
    arrays = {"query_token": query_token, "document": document, "document_token": document_token}
    arrays["similarity"] = similarity
    return [Hits.trusted(**{name: array[part] for name, array in arrays.items()}) for part in parts]


def _check_dimensions(queries: TokenVectors, documents: TokenVectors, name: str, owner: str) -> None:
    for parameter, value in ((name, queries), ("documents", documents)):
        if not isinstance(value, TokenVectors):
            raise invalid(parameter, owner, "a TokenVectors", type(value).__name__)
    if documents.dim != queries.dim:
        raise invalid("documents", owner, f"of the dimension of {name}, {queries.dim}", documents.dim)


def _selection(
    alignment: Alignment | str, lengths: NDArray[np.int64], owner: str, full_lengths: NDArray[np.int64] | None
) -> tuple[Alignment, NDArray[np.int32] | None]:
    """Return the alignment and how many tokens each document may align per query token (None: one)."""
    chosen = Alignment.parse(alignment)
    if isinstance(chosen, SumOfMax):
        return chosen, None
    if isinstance(chosen, TopK):
        return chosen, np.minimum(lengths, min(chosen.k, _INT32_MAX)).astype(np.int32)
    if isinstance(chosen, TopP):
        return chosen, np.minimum(chosen.count(lengths if full_lengths is None else full_lengths), lengths).astype(
            np.int32
        )
    raise invalid("alignment", owner, "sum-of-max, top-k or top-p (weft.score knows the others)", str(chosen))


def _float32(queries: TokenVectors) -> NDArray[np.float32]:
    return np.ascontiguousarray(queries.values, dtype=np.float32)


def _divide(scores: NDArray[np.float32], z: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.divide(scores, z, out=np.zeros_like(scores), where=z > 0)
