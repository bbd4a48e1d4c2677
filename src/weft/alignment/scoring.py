"""`score` and `align`: one computation, seen from two sides.

    S = Q Dᵀ  →  Ã from the alignment  →  A = Ã ∘ (u_q ⊗ u_d)  →  rel = 1/Z · Σ S∘A

`evaluate` does it once; `score` returns the last line and `align` the A that it was summed with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from array_api_compat import array_namespace, is_torch_array

from weft.alignment.backend import Array, as_array, as_float, like
from weft.alignment.base import Alignment, Pairs
from weft.errors import invalid
from weft.types import TokenVectors


class Aligned(NamedTuple):
    """All terms of the formula for B queries and N documents.

    `similarity` equals S, save where an alignment imputes what was not retrieved (XTR eq. 4).
    """

    similarity: Array
    """(B, N, n, m)"""
    alignment: Array
    """A = Ã ∘ (u_q ⊗ u_d), (B, N, n, m)"""
    z: Array
    """(B, N)"""

    @property
    def score(self) -> Array:
        """1/Z · Σ S∘A, shape (B, N); 0 where Z is 0."""
        xp = array_namespace(self.similarity)
        # An overflowed similarity that nothing aligns with must not become NaN.
        used = xp.where(self.alignment != 0, self.similarity, xp.zeros_like(self.similarity))
        total = xp.sum(used * self.alignment, axis=(-2, -1))
        some = self.z != 0
        return xp.where(some, total / xp.where(some, self.z, xp.ones_like(self.z)), xp.zeros_like(total))


def evaluate(
    pairs: Pairs,
    alignment: Alignment | str,
    query_salience: Array | None = None,
    document_salience: Array | None = None,
) -> Aligned:
    """Compute every term of rel(Q, D) for all pairs of a batch; differentiable on torch.

    Saliences have the shapes of the masks, (B, n) and (N, m). Values at padded positions are never used.
    """
    alignment = Alignment.parse(alignment)
    xp = pairs.xp
    S = as_float(pairs.S)
    pairs = replace(pairs, S=xp.where(pairs.valid, S, xp.zeros_like(S)))
    S, A = alignment.solve(pairs)
    if document_salience is not None:
        A = A * xp.where(pairs.document_mask, document_salience, xp.zeros_like(document_salience))[None, :, None, :]
    return _with_query_salience(S, A, alignment, pairs, query_salience)


def relevance(
    pairs: Pairs,
    alignment: Alignment | str,
    query_salience: Array | None = None,
    document_salience: Array | None = None,
) -> Array:
    """Return `evaluate(…).score`, without the matrices of all pairs where the alignment knows a shorter way.

    For training, where the matrices of a batch are most of the work. The gradient is the same but for equals: it goes
    to the first of them in `evaluate`, to all of them here.
    """
    alignment = Alignment.parse(alignment)
    found = alignment.contributions(pairs) if document_salience is None and alignment.divides_by != "sum" else None
    if found is None:
        return evaluate(pairs, alignment, query_salience, document_salience).score
    S = found[..., None]  # as if each query token had one partner, of weight 1
    return _with_query_salience(S, pairs.xp.ones_like(S), alignment, pairs, query_salience).score


def _with_query_salience(S: Array, A: Array, alignment: Alignment, pairs: Pairs, salience: Array | None) -> Aligned:
    if salience is not None:
        xp = pairs.xp
        A = A * xp.where(pairs.query_mask, salience, xp.zeros_like(salience))[:, None, :, None]
    return Aligned(S, A, alignment.normaliser(A, pairs))


def score(
    Q: Any,
    D: Any,
    alignment: Alignment | str = "sum-of-max",
    *,
    query_mask: Any = None,
    document_mask: Any = None,
    query_salience: Any = None,
    document_salience: Any = None,
    query_tokens: Any = None,
    document_tokens: Any = None,
    attention: Any = None,
) -> Any:
    """Relevance rel(Q, D) = 1/Z · Σ S∘A of every query with every document.

    Parameters
    ----------
    Q, D : TokenVectors, or array or tensor of shape (tokens, dim) or (texts, tokens, dim)
        One text or a batch. Both NumPy or both torch; gradients flow on torch. Half precision is summed in float32.
    alignment : Alignment or str
        ``"sum-of-max"``, ``"top-k:4"``, ``"top-p:0.015"``, … (`Alignment.names()`).
    query_mask, document_mask : bool arrays (texts, tokens), optional
        True where a token is real, for padded batches.
    query_salience, document_salience : arrays (texts, tokens), optional
        u_q and u_d of ALIGNER eq. 2. A TokenVectors brings its own.
    query_tokens, document_tokens : int arrays (texts, tokens), optional
        Vocabulary ids, for exact lexical match. A TokenVectors brings its own.
    attention : array (queries, documents, query tokens, document tokens), optional
        The matrix of the ``"attention"`` alignment. Without batches, (query tokens, document tokens).

    Returns
    -------
    array or tensor
        Shape (queries, documents), without the axis of a side that was a single text.

    Examples
    --------
    >>> import numpy as np
    >>> Q = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> D = np.array([[0.8, 0.6], [0.6, 0.8], [1.0, 0.0]])
    >>> float(score(Q, D))
    1.8
    >>> float(score(Q, D, "top-k:2"))
    0.8
    """
    u, ids = (query_salience, document_salience), (query_tokens, document_tokens)
    given = _Given((query_mask, document_mask), u, ids, attention)
    batch = _prepare("score", Q, D, given)
    return batch.squeeze(batch.evaluate(alignment).score)


def align(
    Q: Any,
    D: Any,
    alignment: Alignment | str = "sum-of-max",
    *,
    query_mask: Any = None,
    document_mask: Any = None,
    query_salience: Any = None,
    document_salience: Any = None,
    query_tokens: Any = None,
    document_tokens: Any = None,
    attention: Any = None,
) -> Any:
    """Return the alignment matrix A that `score` sums with; the same arguments.

    Where an alignment imputes (XTR eq. 4), A weighs imputed similarities: `aligned` returns them too.

    Returns
    -------
    array or tensor
        Shape (queries, documents, query tokens, document tokens), without the axis of a single text.
        Rows and columns of padding are 0.

    Examples
    --------
    >>> import numpy as np
    >>> Q = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> D = np.array([[0.8, 0.6], [0.6, 0.8], [1.0, 0.0]])
    >>> align(Q, D)
    array([[0., 0., 1.],
           [0., 1., 0.]])
    """
    u, ids = (query_salience, document_salience), (query_tokens, document_tokens)
    given = _Given((query_mask, document_mask), u, ids, attention)
    batch = _prepare("align", Q, D, given)
    return batch.squeeze(batch.evaluate(alignment).alignment)


def aligned(
    Q: Any,
    D: Any,
    alignment: Alignment | str = "sum-of-max",
    *,
    query_mask: Any = None,
    document_mask: Any = None,
    query_salience: Any = None,
    document_salience: Any = None,
    query_tokens: Any = None,
    document_tokens: Any = None,
    attention: Any = None,
) -> Aligned:
    """Return every term of the formula, (similarity, alignment, z); the same arguments as `score`.

    `similarity` is what the score sums: S, or with imputation Ŝ. So rel = Σ similarity∘alignment / z for all of them.

    Examples
    --------
    >>> import numpy as np
    >>> D = TokenVectors.from_list([[[0.9, 0.6], [0.1, 0.5]], [[0.7, 0.3]]])
    >>> terms = aligned(np.eye(2), D, "xtr:2")
    >>> terms.similarity[1, :, 0].round(2).tolist()  # q₂ retrieved nothing of it: 0.5 is imputed
    [0.7, 0.5]
    >>> terms.score.round(2).tolist()
    [0.75, 0.6]
    """
    u, ids = (query_salience, document_salience), (query_tokens, document_tokens)
    given = _Given((query_mask, document_mask), u, ids, attention)
    batch = _prepare("aligned", Q, D, given)
    return Aligned(*(batch.squeeze(term) for term in batch.evaluate(alignment)))


class _Given(NamedTuple):
    """What came with Q and D; pairs are (of the query, of the document)."""

    masks: tuple[Any, Any]
    saliences: tuple[Any, Any]
    tokens: tuple[Any, Any]
    attention: Any


@dataclass(frozen=True, eq=False)
class _Batch:
    pairs: Pairs
    query_salience: Array | None
    document_salience: Array | None
    single_query: bool
    single_document: bool

    def evaluate(self, alignment: Alignment | str) -> Aligned:
        return evaluate(self.pairs, alignment, self.query_salience, self.document_salience)

    def squeeze(self, result: Array) -> Any:
        if self.single_document:
            result = result[:, 0]
        return result[0] if self.single_query else result


@dataclass(frozen=True, eq=False)
class _Side:
    """One side of the comparison as a padded batch: values (B, n, dim), the rest (B, n)."""

    values: Array
    mask: Array
    tokens: Array | None
    salience: Array | None
    single: bool


def pairs_of(query: TokenVectors, documents: TokenVectors) -> Pairs:
    """Return every token of a query against every token of some documents, padded, for an alignment to look at."""
    none = (None, None)
    return _prepare("pairs_of", query, documents, _Given(none, none, none, None)).pairs


def _prepare(owner: str, Q: Any, D: Any, given: _Given) -> _Batch:
    query = _side(owner, "query", "Q", Q, given.masks[0], given.tokens[0], given.saliences[0])
    document = _side(owner, "document", "D", D, given.masks[1], given.tokens[1], given.saliences[1])
    if is_torch_array(query.values) != is_torch_array(document.values):
        raise invalid("D", owner, "of the same kind as Q, NumPy or torch", type(D).__name__)
    if query.values.shape[-1] != document.values.shape[-1]:
        raise invalid("D", owner, f"of Q's dimension, {query.values.shape[-1]}", document.values.shape[-1])
    xp = array_namespace(query.values, document.values)
    wide = xp.result_type(query.values, document.values)
    # (B, 1, n, dim) @ (1, N, dim, m) → (B, N, n, m)
    turned = xp.permute_dims(xp.astype(document.values, wide), (0, 2, 1))
    S = as_float(xp.astype(query.values, wide)[:, None] @ turned[None])  # autocast may have made it half
    pairs = Pairs(S, query.mask, document.mask, query.tokens, document.tokens)
    if given.attention is not None:
        attention = _attention(owner, given.attention, pairs, query.single, document.single)
        pairs = replace(pairs, attention=attention)
    return _Batch(pairs, query.salience, document.salience, query.single, document.single)


def _side(owner: str, side: str, name: str, texts: Any, mask: Any, tokens: Any, salience: Any) -> _Side:
    if isinstance(texts, TokenVectors):
        given = {"mask": mask, "tokens": tokens, "salience": salience}
        for key, value in given.items():
            if value is not None:
                raise invalid(f"{side}_{key}", owner, f"left out when {name} is a TokenVectors", type(value).__name__)
        padded = texts.to_padded()
        return _Side(as_float(padded.values), padded.mask, padded.token_ids, padded.salience, single=False)
    values = as_float(as_array(texts, name, owner))
    if values.ndim not in (2, 3) or values.shape[-1] == 0:
        raise invalid(name, owner, "of shape (tokens, dim) or (texts, tokens, dim), dim >= 1", tuple(values.shape))
    single = values.ndim == 2
    xp = array_namespace(values)
    shape = tuple(values.shape[:-1])

    def per_token(value: Any, parameter: str) -> Array:
        array = like(value, values, f"{side}_{parameter}", owner)
        if tuple(array.shape) != shape:
            raise invalid(f"{side}_{parameter}", owner, f"of shape {shape}, one entry a token", tuple(array.shape))
        return array[None] if single else array

    values = values[None] if single else values
    real = xp.ones_like(values[..., 0], dtype=xp.bool) if mask is None else xp.astype(per_token(mask, "mask"), xp.bool)
    if not bool(xp.all(xp.isfinite(values) | ~real[..., None])):
        raise invalid(name, owner, "finite (no NaN, no infinity)", "a vector with NaN or infinity")
    # Padding may hold anything, NaN included: no arithmetic may meet it, nor may its gradient.
    values = xp.where(real[..., None], values, xp.zeros_like(values))
    u = None
    if salience is not None:
        u = as_float(per_token(salience, "salience"))
        if not bool(xp.all((xp.isfinite(u) & (u >= 0)) | ~real)):
            raise invalid(f"{side}_salience", owner, "finite and >= 0", salience)
    ids = None if tokens is None else per_token(tokens, "tokens")
    return _Side(values, real, ids, u, single)


def _attention(owner: str, attention: Any, pairs: Pairs, single_query: bool, single_document: bool) -> Array:
    attention = as_float(like(attention, pairs.S, "attention", owner))
    B, N, n, m = pairs.S.shape
    expected = (() if single_query else (B,)) + (() if single_document else (N,)) + (n, m)
    if tuple(attention.shape) != expected:
        raise invalid("attention", owner, f"of shape {expected}", tuple(attention.shape))
    xp = pairs.xp
    attention = xp.reshape(attention, (B, N, n, m))
    if not bool(xp.all(xp.isfinite(attention) | ~pairs.valid)):
        raise invalid("attention", owner, "finite (no NaN, no infinity)", "a matrix with NaN or infinity")
    return xp.where(pairs.valid, attention, xp.zeros_like(attention))
