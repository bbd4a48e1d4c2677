"""`NGramIndex`: what decoding and scoring ask of a corpus, in either form of storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft import _native
from weft.checks import integers
from weft.errors import CorruptIndexError, IndexFormatError, invalid
from weft.generative.corpus_index.corpus import MAX_ROWS, MAX_VOCABULARY, Corpus, lay_out, symbols_of
from weft.generative.corpus_index.heads import find_heads, no_heads
from weft.generative.corpus_index.storage import TokenTextFile, open_file, pack_ids, unpack_ids, write_file

if TYPE_CHECKING:
    from weft.generative.corpus_index.ngrams import NGrams

TABLES = ("starts", "alphabet", "first", "head_first", "head_lows", "head_offsets", "head_symbols", "head_stops")


@dataclass(frozen=True, eq=False)
class States:
    """n-grams as the index knows them, one a row: rows ``low:high`` of its order, `depth` tokens long.

    An empty range is an n-gram that the corpus does not have.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    depth: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.low)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each occurs, shape (n,); for the empty n-gram the text's length."""
        return self.high - self.low


class Continuations(NamedTuple):
    """What follows n-gram b, and how often: ``tokens[offsets[b]:offsets[b + 1]]``, ascending, and `counts` likewise."""

    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]
    counts: NDArray[np.int32]


class Occurrences(NamedTuple):
    """Where n-gram b begins: ``documents[offsets[b]:offsets[b + 1]]`` (numbers) and `positions` (tokens) likewise."""

    offsets: NDArray[np.int64]
    documents: NDArray[np.int64]
    positions: NDArray[np.int32]


class NGramIndex(ABC):
    """A corpus of token ids that knows all its n-grams. `TokenTextIndex` and `FMIndex` are the two forms.

    No n-gram crosses from one document to the next, and none holds a token of `breaks`.

    Examples
    --------
    >>> from weft.generative.corpus_index import FMIndex, TokenTextIndex
    >>> documents = [[5, 6, 7, 6, 7], [6, 7, 8]]
    >>> index = TokenTextIndex.build(documents, ["a", "b"], vocabulary=10)
    >>> states = index.extend(index.start(1), [6])
    >>> follow = index.continuations(index.extend(states, [7]))
    >>> follow.tokens.tolist(), follow.counts.tolist()
    ([6, 8], [1, 1])
    >>> index.count([6, 7]), index.count([7, 5])
    (3, 0)
    >>> FMIndex.build(documents, ["a", "b"], vocabulary=10).count([6, 7])
    3
    """

    kind: ClassVar[str]
    heads: ClassVar[int]
    """n-grams that occur so often, or more often, have their continuations stored."""
    _extra: ClassVar[tuple[str, ...]]
    """The arrays of this form, beside those of both."""

    def __init__(self, info: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | TokenTextFile) -> None:
        self._info, self._arrays = dict(info), arrays

    # -- making one ------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        documents: Iterable[ArrayLike],
        ids: Sequence[str],
        *,
        vocabulary: int,
        tokenizer: str = "",
        breaks: Collection[int] = (),
        allow_empty: bool = False,
        heads: int | None = None,
    ) -> Self:
        """Index documents.

        Parameters
        ----------
        documents : iterable of arrays of int
            The token ids of each document.
        ids : sequence of str
            The documents' own ids, all different.
        vocabulary : int
            Token ids are less than this.
        tokenizer : str
            Name or fingerprint of the tokenizer, checked by `open`; empty if unknown.
        breaks : collection of int
            Tokens that end an n-gram wherever they stand and are never offered: padding, end of text, unknown.
        allow_empty : bool
            Accept documents without a token, which no n-gram can find, and collections without a document.
        heads : int, optional
            Store the continuations of n-grams that occur so often (default: the class' own). A higher number makes the
            file smaller, and beams of frequent words slower.
        """
        threshold = cls.heads if heads is None else heads
        if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 1:
            raise invalid("heads", f"{cls.__name__}.build", "an integer >= 1", heads)
        breaks = sorted({int(token) for token in breaks})
        ids = list(ids)
        corpus = lay_out(documents, ids, vocabulary, breaks, allow_empty)
        own, extra = cls._sorted(corpus)
        arrays: dict[str, NDArray[Any]] = {
            "starts": corpus.starts,
            "alphabet": corpus.alphabet,
            "first": corpus.first,
            **own,
            **no_heads(corpus.text.dtype),
            **pack_ids(ids),
        }
        info = {
            "kind": cls.kind,
            "tokenizer": tokenizer,
            "vocabulary": vocabulary,
            "breaks": breaks,
            "documents": len(ids),
            "tokens": int(corpus.first[-1] - corpus.first[1]),
            **extra,
        }
        bare = cls(info, arrays)._native
        symbols = symbols_of(corpus.alphabet, vocabulary)
        arrays |= find_heads(bare, len(corpus.text), symbols, corpus.text.dtype, threshold)
        return cls(info, arrays)

    @classmethod
    @abstractmethod
    def _sorted(cls, corpus: Corpus) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return this form's own arrays and header entries."""

    @abstractmethod
    def _make(self, tables: _native.CorpusIndexTables) -> _native.CorpusIndex:
        """Return the native object over the arrays."""

    @classmethod
    def open(cls, path: str | Path, *, tokenizer: str | None = None, vocabulary: int | None = None) -> Self:
        """Open a saved index; `tokenizer` and `vocabulary`, where given, must be the ones it was built with.

        Only the header is read now. The first question verifies the whole file's checksums.
        """
        file = open_file(Path(path))
        try:
            kinds = {form.kind: form for form in (cls, *cls.__subclasses__()) if hasattr(form, "kind")}
            form = kinds.get(str(file.info.get("kind", "")))
            if form is None:
                known = ", ".join(kinds)
                raise IndexFormatError(f"{path} is a corpus index of the kind {file.info.get('kind')!r}, not {known}")
            index = form(file.info, file)
            index._check_header()
            for name, asked in (("tokenizer", tokenizer), ("vocabulary", vocabulary)):
                stored = getattr(index, name)
                if asked is not None and stored not in ("", asked):
                    raise IndexFormatError(
                        f"the corpus index at {path} was built with {name} {stored!r}, not {asked!r}"
                    )
        except BaseException:
            file.close()
            raise
        return index

    def save(self, path: str | Path) -> None:
        """Write the index to one new file, whole or not at all."""
        self._native  # noqa: B018  an opened one is verified before it is copied
        names = (*TABLES, *self._extra, "id_bytes", "id_offsets")
        write_file(Path(path), {name: self._arrays[name] for name in names}, self._info)

    def check(self) -> None:
        """Verify every checksum and every reference from one array to another; raise if one is wrong."""
        self._native  # noqa: B018
        if len(self.ids) != len(self) or len(set(self.ids)) != len(self):
            raise CorruptIndexError(f"{self._name}: damaged: ids of documents; build the corpus index again")

    def close(self) -> None:
        """Unmap the file; nothing can be asked afterwards."""
        vars(self).pop("_native", None)
        if isinstance(self._arrays, TokenTextFile):
            self._arrays.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- looking at one --------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._info["documents"])

    @property
    def n_tokens(self) -> int:
        """Number of tokens, without those that break the text: SEAL's T."""
        return int(self._info["tokens"])

    @property
    def vocabulary(self) -> int:
        """Token ids are less than this."""
        return int(self._info["vocabulary"])

    @property
    def tokenizer(self) -> str:
        """Name or fingerprint of the tokenizer; empty if unknown."""
        return str(self._info["tokenizer"])

    @property
    def breaks(self) -> tuple[int, ...]:
        """Tokens that are part of no n-gram."""
        return tuple(self._info["breaks"])

    @property
    def nbytes(self) -> int:
        """Size of all arrays."""
        return sum(self._arrays[name].nbytes for name in (*TABLES, *self._extra, "id_bytes", "id_offsets"))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The documents' ids, by number."""
        self._native  # noqa: B018
        try:
            return tuple(unpack_ids(self._arrays["id_bytes"], self._arrays["id_offsets"]))
        except (TypeError, ValueError):  # not UTF-8, or numbers that are no places
            raise CorruptIndexError(f"{self._name}: damaged: ids of documents; build the corpus index again") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} documents, {self.n_tokens} tokens, {self.nbytes} bytes)"

    # -- asking it -------------------------------------------------------------------------------

    def start(self, n: int) -> States:
        """Return `n` times the empty n-gram, which every token may follow."""
        rows = int(self._arrays["first"][-1])
        return States(np.zeros(n, np.int64), np.full(n, rows, np.int64), np.zeros(n, np.int32))

    def extend(self, states: States, tokens: ArrayLike) -> States:
        """Return the n-grams one token longer; shape (n,)."""
        return States(*self._native.advance(states.low, states.high, states.depth, None, _ids(tokens, "extend")))

    def advance(self, states: States, beams: ArrayLike, tokens: ArrayLike) -> States:
        """Return n-gram ``beams[i]`` followed by ``tokens[i]``; shape (m,)."""
        chosen = integers(beams, "beams", "NGramIndex.advance", np.int64)
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= len(states)):
            raise invalid("beams", "NGramIndex.advance", f"rows of the {len(states)} states", beams)
        made = self._native.advance(states.low, states.high, states.depth, chosen, _ids(tokens, "advance"))
        return States(*made)

    def continuations(self, states: States) -> Continuations:
        """Return the tokens that follow each n-gram somewhere in the corpus, and how often."""
        return Continuations(*self._native.continuations(states.low, states.high, states.depth, True))

    def following(self, states: States) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets and tokens of `continuations` without the counts, which decoding does not need."""
        offsets, tokens, _ = self._native.continuations(states.low, states.high, states.depth, False)
        return offsets, tokens

    def find(self, ngrams: Iterable[Sequence[int]]) -> States:
        """Return the states of whole n-grams; tokens that the corpus does not have make an empty range."""
        offsets, tokens = _flat(ngrams, "find")
        low, high = self._native.find(offsets, tokens)
        return States(low, high, np.diff(offsets).astype(np.int32))

    def count(self, ngram: Sequence[int] | NDArray[np.integer[Any]]) -> int:
        """Return how often an n-gram occurs: F of SEAL's weights. The empty one occurs wherever a token does."""
        tokens = ngram.tolist() if isinstance(ngram, np.ndarray) else list(ngram)
        try:
            return self._native.count(tokens) if tokens else self.n_tokens
        except TypeError:
            raise invalid("ngram", "NGramIndex.count", "a sequence of integers", ngram) from None

    def locate(self, states: States, limit: int | None = None) -> Occurrences:
        """Return where the n-grams begin, at most `limit` places of each, in the index's own order.

        Of the empty n-gram no places are returned.
        """
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise invalid("limit", "NGramIndex.locate", "None or an integer >= 0", limit)
        most = -1 if limit is None else min(limit, 2**62)  # native code counts in 64 bits
        try:
            return Occurrences(*self._native.locate(states.low, states.high, states.depth, most))
        except ValueError as error:  # the states are those of an index: what they lead to does not fit
            raise CorruptIndexError(f"{self._name}: damaged: {error}; build the corpus index again") from None

    def read(self, documents: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets and tokens of documents, by number; -1 stands for a token that broke the text."""
        numbers = integers(documents, "documents", "NGramIndex.read", np.int64)
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise invalid("documents", "NGramIndex.read", f"numbers from 0 to {len(self) - 1}", documents)
        return self._native.read(numbers)

    def seal(
        self,
        documents: NDArray[np.int64],
        ngrams: Sequence[Sequence[int]],
        weights: NDArray[np.float64],
        tokens: NDArray[np.float64],
        beta: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
        """Score documents by the n-grams (in order, none twice) and tokens in them: see `weft.generative.seal`.

        Returns the scores and, by the offsets that come second, what each is the sum of: the n-gram's place in the
        list, or -1 - token; where it begins; its cover.
        """
        return self._native.seal(documents, *_flat(ngrams, "seal"), weights, tokens, beta)

    def constraint(self) -> NGrams:
        """Return the constraint that holds a beam search to n-grams of the corpus."""
        from weft.generative.corpus_index.ngrams import NGrams

        return NGrams(self)

    @cached_property
    def _native(self) -> _native.CorpusIndex:
        """The arrays as the kernels see them, verified if they come from a file."""
        if isinstance(self._arrays, TokenTextFile):
            self._arrays.verify()
        try:
            arrays = {name: self._arrays[name] for name in TABLES}
            symbols = symbols_of(arrays["alphabet"], self.vocabulary)
            tables = _native.CorpusIndexTables(
                arrays.pop("starts"), arrays.pop("alphabet"), arrays.pop("first"), symbols, **arrays
            )
            return self._make(tables)
        except (IndexError, KeyError, TypeError, ValueError) as error:  # with right checksums: it was written wrong
            raise CorruptIndexError(f"{self._name}: damaged: {error}; build the corpus index again") from None

    @property
    def _name(self) -> str:
        return str(self._arrays.path) if isinstance(self._arrays, TokenTextFile) else "the corpus index"

    def _check_header(self) -> None:
        info, breaks = self._info, self._info.get("breaks")
        there = all(name in self._arrays for name in (*TABLES, *self._extra, "id_bytes", "id_offsets"))
        # Tables of the vocabulary's size are made before any array is looked at.
        if not (
            there
            and _is_number(info.get("vocabulary"), 1, MAX_VOCABULARY)
            and _is_number(info.get("tokens"), 0, MAX_ROWS)
            and _is_number(info.get("documents"), 0, MAX_ROWS)
            and self._arrays["id_offsets"].shape == (info["documents"] + 1,)
            and isinstance(info.get("tokenizer"), str)
            and isinstance(breaks, list)
            and all(_is_number(token, 0, info["vocabulary"] - 1) for token in breaks)
        ):
            raise CorruptIndexError(f"{self._name}: damaged: header of a corpus index; build the corpus index again")


def _is_number(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _flat(ngrams: Iterable[Sequence[int]], method: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    listed = list(ngrams)
    offsets = np.zeros(len(listed) + 1, np.int64)
    np.cumsum([len(ngram) for ngram in listed], out=offsets[1:])
    return offsets, _ids(list(chain.from_iterable(listed)), method)


def _ids(tokens: ArrayLike, method: str) -> NDArray[np.int32]:
    ids: NDArray[np.int32] = integers(tokens, "tokens", f"NGramIndex.{method}", np.int32)
    return ids
