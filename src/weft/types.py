"""The nouns of weft: ragged token vectors, token hits, rankings and documents.

A text of m tokens is an (m, dim) array. A collection of texts is one `TokenVectors`: the arrays laid
end to end, and `offsets` saying where each text begins. Nothing here is padded; padding exists only
inside a batch (`to_padded`), where a mask says which rows are real.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.checks import FloatArray, concatenate_optional, float_matrix, integers, join, numbers, one_a_token
from weft.errors import invalid

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.integer[Any]]

PASSAGE_SEPARATOR = "##"
"""Stands between a document's id and the number of a passage of it, ``report##0``: no whole document is named so."""


class Padded(NamedTuple):
    """A rectangular batch of texts. Shapes: (N, m, dim) and (N, m), m the longest text's length."""

    values: FloatArray
    mask: BoolArray
    token_ids: IntArray | None
    salience: FloatArray | None
    spans: IntArray | None = None


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """One vector per token for a collection of N texts of unequal length (ragged, contiguous).

    Parameters
    ----------
    values : array, shape (T, dim), float32 or float16
        The token vectors of all texts, end to end. Other numeric types become float32.
    offsets : array of int, shape (N + 1,)
        Text i owns rows ``offsets[i]:offsets[i + 1]``; starts at 0, never falls, ends at T.
    token_ids : array of int, shape (T,), optional
        The vocabulary id of each token, needed by exact lexical match.
    salience : array of float, shape (T,), optional
        The unary salience u of each token (ALIGNER eq. 3), finite and not negative.
    spans : array of int, shape (T, 2), optional
        Where each token stands in its text: characters ``start:stop``, or (-1, -1) for a token that is not of the text
        (special tokens, markers, expansions).

    Examples
    --------
    >>> import numpy as np
    >>> texts = TokenVectors.from_list([np.ones((2, 4)), np.zeros((0, 4)), np.ones((3, 4))])
    >>> len(texts), texts.dim, texts.lengths.tolist()
    (3, 4, [2, 0, 3])
    >>> texts[2].shape
    (3, 4)
    >>> texts[1:].lengths.tolist()
    [0, 3]
    """

    values: FloatArray
    offsets: NDArray[np.int64]
    token_ids: NDArray[np.int32] | None = None
    salience: NDArray[np.float32] | None = None
    spans: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        owner = "TokenVectors"
        values = float_matrix(self.values, "values", owner)
        offsets = integers(self.offsets, "offsets", owner, np.int64)
        if offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
            raise invalid("offsets", owner, "a 1-D array that starts at 0 and never decreases", self.offsets)
        if offsets[-1] != len(values):
            raise invalid(
                "offsets",
                owner,
                f"an array that ends at the number of tokens, {len(values)}",
                int(offsets[-1]),
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets)
        if self.token_ids is not None:
            ids = integers(self.token_ids, "token_ids", owner, np.int32)
            one_a_token(ids, values, "token_ids", owner)
            object.__setattr__(self, "token_ids", ids)
        if self.salience is not None:
            salience = np.ascontiguousarray(numbers(self.salience, "salience", owner), dtype=np.float32)
            one_a_token(salience, values, "salience", owner)
            if not np.isfinite(salience).all() or (salience < 0).any():
                bad = salience[~(np.isfinite(salience) & (salience >= 0))][0]
                raise invalid("salience", owner, "finite and >= 0", float(bad))
            object.__setattr__(self, "salience", salience)
        if self.spans is not None:
            spans = integers(self.spans, "spans", owner, np.int32)
            spans = spans if spans.size else spans.reshape(0, 2)
            one_a_token(spans, values, "spans", owner, (2,))
            object.__setattr__(self, "spans", spans)

    # -- making one ------------------------------------------------------------------------------

    @classmethod
    def from_list(
        cls,
        texts: Iterable[ArrayLike],
        token_ids: Iterable[ArrayLike] | None = None,
        salience: Iterable[ArrayLike] | None = None,
        spans: Iterable[ArrayLike] | None = None,
        *,
        dim: int | None = None,
    ) -> TokenVectors:
        """Join one (m, dim) array per text; `dim` is needed only when there is no text to tell it."""
        arrays = [float_matrix(text, "texts", "TokenVectors.from_list") for text in texts]
        dims = {array.shape[1] for array in arrays} | ({dim} if dim is not None else set())
        if len(dims) != 1:
            expected = "arrays of one dimension (or dim= for an empty list)"
            raise invalid("texts", "TokenVectors.from_list", expected, sorted(dims))
        lengths = [len(array) for array in arrays]
        return cls(
            np.concatenate(arrays) if arrays else np.zeros((0, dims.pop()), dtype=np.float32),
            np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            join(token_ids, lengths, "token_ids", np.int32),
            join(salience, lengths, "salience", np.float32),
            join(spans, lengths, "spans", np.int32, (2,)),
        )

    @classmethod
    def from_padded(
        cls,
        values: ArrayLike,
        mask: ArrayLike,
        token_ids: ArrayLike | None = None,
        salience: ArrayLike | None = None,
        spans: ArrayLike | None = None,
    ) -> TokenVectors:
        """Drop the padding of a (N, m, dim) batch; `mask` (N, m) is True where a token is real."""
        batch = np.asarray(values)
        keep = np.asarray(mask).astype(bool)
        if batch.ndim != 3:
            raise invalid("values", "TokenVectors.from_padded", "an array of shape (N, m, dim)", batch.shape)
        if keep.shape != batch.shape[:2]:
            raise invalid("mask", "TokenVectors.from_padded", f"an array of shape {batch.shape[:2]}", keep.shape)
        for name, extra in (("token_ids", token_ids), ("salience", salience), ("spans", spans)):
            expected = keep.shape if name != "spans" else (*keep.shape, 2)
            if extra is not None and np.shape(extra) != expected:
                raise invalid(name, "TokenVectors.from_padded", f"an array of shape {expected}", np.shape(extra))
        return cls(
            batch[keep],
            np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int64),
            None if token_ids is None else np.asarray(token_ids)[keep],
            None if salience is None else np.asarray(salience)[keep],
            None if spans is None else np.asarray(spans)[keep],
        )

    @classmethod
    def concatenate(cls, parts: Iterable[TokenVectors]) -> TokenVectors:
        """Lay several collections end to end; ids, saliences and spans survive only where every part has them."""
        parts = list(parts)
        if not parts:
            raise invalid("parts", "TokenVectors.concatenate", "at least one TokenVectors", parts)
        if len({part.dim for part in parts}) != 1:
            raise invalid("parts", "TokenVectors.concatenate", "of one dimension", sorted({p.dim for p in parts}))
        starts = np.cumsum([0] + [part.n_tokens for part in parts])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([*offsets, starts[-1:]]).astype(np.int64),
            concatenate_optional([part.token_ids for part in parts]),
            concatenate_optional([part.salience for part in parts]),
            concatenate_optional([part.spans for part in parts]),
        )

    def without_salience(self) -> TokenVectors:
        """Return the same texts with no saliences: every token weighs the same."""
        return TokenVectors.trusted(self.values, self.offsets, self.token_ids, None, self.spans)

    @classmethod
    def trusted(
        cls,
        values: FloatArray,
        offsets: NDArray[np.int64],
        token_ids: NDArray[np.int32] | None = None,
        salience: NDArray[np.float32] | None = None,
        spans: NDArray[np.int32] | None = None,
    ) -> TokenVectors:
        """Take arrays known to be valid as they are, without the checks that read every value."""
        made = object.__new__(cls)
        fields = {"values": values, "offsets": offsets, "token_ids": token_ids, "salience": salience, "spans": spans}
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        return made

    # -- looking at one --------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.values.shape[1])

    @property
    def n_tokens(self) -> int:
        """Number of tokens T in all texts together."""
        return len(self.values)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text, shape (N,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[FloatArray]:
        return (self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    def __getitem__(self, which: Any) -> Any:
        """``texts[i]`` is the (m, dim) array of text i; ``texts[a:b]`` a TokenVectors. Neither copies."""
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step != 1:
                return self.select(range(start, stop, step))
            return self._rows(start, max(start, stop))
        which = self._position(which)
        return self.values[self.offsets[which] : self.offsets[which + 1]]

    def _position(self, which: Any) -> int:
        if isinstance(which, bool) or not isinstance(which, Integral):
            raise invalid("which", "TokenVectors[...]", "an integer or a slice (select takes a list)", which)
        position = int(which)
        if not -len(self) <= position < len(self):
            raise IndexError(f"text {position} of a TokenVectors with {len(self)} texts")
        return position % len(self)

    def _rows(self, start: int, stop: int) -> TokenVectors:
        # The parts of a valid whole are valid: skip the checks, which would read every value.
        a, b = self.offsets[start], self.offsets[stop]
        return TokenVectors.trusted(
            self.values[a:b],
            self.offsets[start : stop + 1] - a,
            None if self.token_ids is None else self.token_ids[a:b],
            None if self.salience is None else self.salience[a:b],
            None if self.spans is None else self.spans[a:b],
        )

    def select(self, texts: Iterable[int]) -> TokenVectors:
        """Copy the named texts, in that order, repeats allowed."""
        rows = [self._rows(i, i + 1) for i in map(self._position, texts)]
        return TokenVectors.concatenate(rows) if rows else self._rows(0, 0)

    def to_padded(self) -> Padded:
        """Return the batch as rectangular arrays with a mask; padding is zeros."""
        n, longest = len(self), int(self.lengths.max(initial=0))
        mask = np.arange(longest) < self.lengths[:, None]

        def pad(flat: NDArray[Any]) -> NDArray[Any]:
            out = np.zeros((n, longest, *flat.shape[1:]), dtype=flat.dtype)
            out[mask] = flat
            return out

        return Padded(
            pad(self.values),
            mask,
            None if self.token_ids is None else pad(self.token_ids),
            None if self.salience is None else pad(self.salience),
            None if self.spans is None else pad(self.spans),
        )

    def astype(self, dtype: Any) -> TokenVectors:
        """Return a copy with float32 or float16 values."""
        if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float16)):
            raise invalid("dtype", "TokenVectors.astype", "float32 or float16", dtype)
        return TokenVectors(self.values.astype(dtype), self.offsets, self.token_ids, self.salience, self.spans)

    def __repr__(self) -> str:
        extras = [name for name in ("token_ids", "salience", "spans") if getattr(self, name) is not None]
        return (
            f"TokenVectors({len(self)} texts, {self.n_tokens} tokens, dim {self.dim}, {self.values.dtype}"
            + (f", with {', '.join(extras)}" if extras else "")
            + ")"
        )


@dataclass(frozen=True, eq=False)
class Hits:
    """Retrieved or aligned token pairs as flat arrays of one length: who matched what, and how well.

    `weight` is A_ij of each pair, saliences included (ALIGNER eq. 2); None where all are 1. A `document_token` of -1
    stands for none: the similarity was imputed (XTR eq. 4).

    Examples
    --------
    >>> hits = Hits([0, 1], [7, 7], [3, 5], [0.9, 0.4])
    >>> len(hits), hits.document.tolist()
    (2, [7, 7])
    """

    query_token: NDArray[np.int32]
    document: NDArray[np.int64]
    document_token: NDArray[np.int32]
    similarity: NDArray[np.float32]
    weight: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        for name, dtype in (("query_token", np.int32), ("document", np.int64), ("document_token", np.int32)):
            object.__setattr__(self, name, integers(getattr(self, name), name, "Hits", dtype))
        similarity = numbers(self.similarity, "similarity", "Hits")
        object.__setattr__(self, "similarity", np.ascontiguousarray(similarity, dtype=np.float32))
        if self.weight is not None:
            weight = numbers(self.weight, "weight", "Hits")
            object.__setattr__(self, "weight", np.ascontiguousarray(weight, dtype=np.float32))
        for name in ("query_token", "document", "document_token", "similarity", "weight"):
            if getattr(self, name) is not None and getattr(self, name).shape != (len(self.query_token),):
                raise invalid(name, "Hits", f"an array of shape ({len(self.query_token)},)", getattr(self, name).shape)

    @classmethod
    def trusted(cls, **arrays: Any) -> Hits:
        """Take arrays known to be valid as they are; a search makes many small ones."""
        made = object.__new__(cls)
        vars(made).update(_NO_HITS | arrays)
        return made

    def __len__(self) -> int:
        return len(self.query_token)

    def of_document(self, document: int) -> Hits:
        """Return the hits within one document."""
        keep = self.document == document
        return Hits.trusted(**{name: value[keep] for name, value in vars(self).items() if value is not None})


_NO_HITS = dict.fromkeys(Hits.__dataclass_fields__)


def contributions(pairs: Hits, z: float) -> NDArray[np.float64]:
    """Return what each pair adds to a score, A_ij · S_ij / Z. A search's scores are float32 of their sums.

    Examples
    --------
    >>> contributions(Hits([0, 1], [0, 0], [3, 5], [0.5, 0.25], [1.0, 2.0]), 2.0)
    array([0.25, 0.25])
    """
    terms = pairs.similarity.astype(np.float64)
    if pairs.weight is not None:
        terms *= pairs.weight
    z = float(np.float32(z))  # as a ranking keeps it
    return terms / z if z != 0 else np.zeros_like(terms)


@dataclass(frozen=True)
class Document:
    """A text with the user's own id, stable for ever, and any JSON object as metadata."""

    id: str
    text: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def trusted(cls, id: str, text: str, metadata: Mapping[str, Any]) -> Document:  # noqa: A002
        """Return a document faster: a search reads many."""
        made = object.__new__(cls)
        vars(made).update(id=id, text=text, metadata=metadata)
        return made


class Result(NamedTuple):
    """One line of a ranking."""

    id: str
    score: float


@dataclass(frozen=True, eq=False)
class TokenRetrieval:
    """How the tokens behind an XTR ranking were retrieved (eq. 3)."""

    k_prime: int
    """Tokens that each query token retrieved"""
    last: NDArray[np.float32]
    """(n,) the similarity of the k′-th: m_i under ``impute=kth``"""
    how: str
    """``"exact"``: every token was compared. ``"scanned"``: every token was compared by its byte code, whose errors are
    almost always too small to matter, and the best again in full. ``"sampled"``: `last` is an estimate from a sample of
    the collection"""


@dataclass(frozen=True, eq=False)
class Ranking:
    """Documents for one query, best first.

    `hits`, where kept, holds for each result the aligned token pairs that its score was summed from, and `z`, of shape
    (results,), what that sum was divided by. `certified` is True where no other document can score higher under the
    stored vectors, and `margin` says by how much: the last score less the best that any document left out could reach.
    `missing` counts documents that could not be looked at, in damaged segments (``on_damage="skip"``). Under XTR
    `retrieval` says how tokens were retrieved. `places` says where the index that searched has each document: which
    segment of its view, and which document there; `documents` has them, where they were asked for.

    Examples
    --------
    >>> ranking = Ranking(["b", "a"], [2.0, 1.5])
    >>> ranking[0]
    Result(id='b', score=2.0)
    >>> [result.id for result in ranking]
    ['b', 'a']
    """

    ids: Sequence[str]
    scores: NDArray[np.float32]
    hits: Sequence[Hits] | None = None
    certified: bool = False
    margin: float | None = None
    z: NDArray[np.float32] | None = None
    missing: int = 0
    retrieval: TokenRetrieval | None = None
    places: Sequence[tuple[int, int]] | None = field(default=None, repr=False)
    documents: Sequence[Document] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        scores = np.ascontiguousarray(numbers(self.scores, "scores", "Ranking"), dtype=np.float32)
        if scores.shape != (len(self.ids),):
            raise invalid("scores", "Ranking", f"an array of shape ({len(self.ids)},)", scores.shape)
        if np.isnan(scores).any() or (scores[1:] > scores[:-1]).any():
            raise invalid("scores", "Ranking", "sorted, best first, without NaN", scores.tolist())
        if self.hits is not None and len(self.hits) != len(self.ids):
            raise invalid("hits", "Ranking", f"one Hits for each of the {len(self.ids)} results", len(self.hits))
        if self.z is not None and np.shape(self.z) != scores.shape:
            raise invalid("z", "Ranking", f"an array of shape ({len(self.ids)},)", np.shape(self.z))
        object.__setattr__(self, "ids", tuple(self.ids))
        object.__setattr__(self, "scores", scores)

    @classmethod
    def trusted(cls, **values: Any) -> Ranking:
        """Take values known to be valid as they are: those without defaults, and any others."""
        made = object.__new__(cls)
        vars(made).update(_NO_RANKING | values)
        return made

    def contributions(self, rank: int) -> NDArray[np.float64]:
        """Return what each pair of ``hits[rank]`` adds to the score, A_ij · S_ij / Z: they sum to ``scores[rank]``."""
        if self.hits is None or self.z is None:
            raise invalid("rank", "Ranking.contributions", "asked of a ranking with hits (search(hits=True))", rank)
        return contributions(self.hits[rank], float(self.z[rank]))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rank: Any) -> Any:
        """``ranking[0]`` is the best Result, ``ranking[:3]`` a list of three."""
        if isinstance(rank, slice):
            return [self[position] for position in range(*rank.indices(len(self)))]
        return Result(self.ids[rank], float(self.scores[rank]))

    def __iter__(self) -> Iterator[Result]:
        return (self[rank] for rank in range(len(self)))


_NO_RANKING = {name: made.default for name, made in Ranking.__dataclass_fields__.items() if made.default is not MISSING}
