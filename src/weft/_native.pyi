"""The C++ kernels. Arrays must be C-contiguous; `weft.kernels` is the interface for people."""

import os
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Word = TypeVar("_Word")

# The layout of a coded segment, as native/coded_segment.hpp and native/byte_kernels.hpp describe it.
DIM_MULTIPLE: int
"""Codes have a multiple of so many columns."""
MAX_DIM: int
"""And no more than so many."""
CODE_NORM: float
"""Norm of the longest vector in the units of the codes, before rounding: beyond it, integer scores could overflow."""
BLOCK: int
"""Centroids of a cell are stored in blocks of so many."""
LONG_STEP: int
"""What a step of 0 in the list of a centroid is worth."""
GROUP: int
"""Coordinates whose residual codes are packed together."""
TABLES: int
"""Tables of levels that residuals are rounded to."""
CENTROID_BITS: int
"""Of a token's label; the bits above them are the number of its table."""
LABEL_BYTES: int
"""Of a token's label."""
SPREAD: float
"""How much of a cell's spread counts as similarity when cells are chosen."""
ENTRIES: int
"""Of a codebook of the sketches."""
SUB_VECTOR: int
"""Coordinates that an entry stands for."""
CELL_BYTES: int
"""That a sketch begins with: the number of the token's cell."""

def simd_level() -> str: ...
def simd_levels() -> list[str]: ...
def score(
    queries: NDArray[np.float32],  # (query tokens, dim)
    query_offsets: NDArray[np.int64],  # (B + 1,)
    query_salience: NDArray[np.float32] | None,  # (query tokens,)
    documents: NDArray[np.float32] | NDArray[np.float16],  # (tokens, dim)
    offsets: NDArray[np.int64],  # (N + 1,)
    salience: NDArray[np.float32] | None,  # (tokens,)
    k: NDArray[np.int32] | None,  # (N,), 1 <= k <= length where there are tokens; None is the maximum
    out: NDArray[np.float32],  # (B, N), written
    mass: NDArray[np.float32] | None,  # (B, N), written
    threads: int,
) -> None: ...
def align(
    query: NDArray[np.float32],  # (n, dim)
    documents: NDArray[np.float32] | NDArray[np.float16],
    offsets: NDArray[np.int64],
    k: NDArray[np.int32] | None,
    starts: NDArray[np.int64],  # (N + 1,): where the n * k pairs of each document go
    query_token: NDArray[np.int32],  # (starts[-1],), written, as are the next two
    document_token: NDArray[np.int32],
    similarity: NDArray[np.float32],
) -> None: ...
def similarities(
    query: NDArray[np.float32],  # (n, dim)
    documents: NDArray[np.float32] | NDArray[np.float16],
    offsets: NDArray[np.int64],
    out: NDArray[np.float32],  # (n, tokens), written
) -> None: ...

class MappedFile:
    """A file mapped read-only: native/mapped_file.hpp. It keeps no file descriptor open.

    The file stays mapped as long as the object or an array over it lives. A file that somebody cuts short meanwhile
    kills the process that reads beyond its end, as with any mapping.

    Raises
    ------
    OSError
        What the system says, with its number and the file name: `FileNotFoundError`, `PermissionError`, …
    ValueError
        If the file is empty.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None: ...
    def view(self) -> NDArray[np.uint8]: ...  # (nbytes,), read-only, no copy
    @property
    def nbytes(self) -> int: ...
    def release(self, begin: int, end: int) -> None: ...  # gives back the memory of these bytes; arrays stay valid
    def populate(self) -> None: ...  # reads the file and maps all its pages, where the system can do that at once

def group_by_ward(
    distance: NDArray[np.float32],  # (n, n), squared; overwritten
    weight: NDArray[np.float32],  # (n,), positive; overwritten
    groups: int,
    labels: NDArray[np.int32],  # (n,), written: groups are numbered by their first points
) -> None: ...
def nearest(
    codes: NDArray[np.uint8],  # (tokens, dim)
    centroids: NDArray[np.int8],  # (k, dim), in the units of the codes less 128
    of: NDArray[np.int32],  # (tokens,), written
    distance: NDArray[np.float32],  # (tokens,), written: squared, in the units of the codes
) -> None: ...
def improve_centroids(
    codes: NDArray[np.uint8],
    centroids: NDArray[np.int8],  # (k, dim), written
    rounds: int,
) -> None: ...
def improve_codebooks(
    codes: NDArray[np.uint8],
    cells: NDArray[np.uint8],  # (cells, dim)
    of: NDArray[np.int32],  # (tokens,)
    codebooks: NDArray[np.int8],  # (dim / 4, 16, 4), written
    rounds: int,
) -> None: ...
def sketches(
    codes: NDArray[np.uint8],
    cells: NDArray[np.uint8],  # (cells, dim)
    of: NDArray[np.int32],  # (tokens,)
    codebooks: NDArray[np.int8],  # (dim / 4, 16, 4)
    out: NDArray[np.uint8],  # (tokens, width of a sketch), written
) -> None: ...
def matched_words(
    make: Callable[[int, int, float, list[int]], _Word],  # of start, stop, contribution, query tokens
    text: str,
    steps: NDArray[np.uint8],  # (tokens,) of a segment
    lengths: NDArray[np.uint8],  # (tokens,)
    listed: NDArray[np.int32] | None,  # (E, 3), rising
    first: int,  # the document's tokens, first:stop
    stop: int,
    query_token: NDArray[np.int32],  # (pairs,)
    document_token: NDArray[np.int32],  # (pairs,)
    similarity: NDArray[np.float32],  # (pairs,)
    weight: NDArray[np.float32] | None,  # (pairs,)
    z: float,
) -> list[_Word]: ...

class Engine:
    """A coded segment: native/coded_segment.hpp."""

    def __init__(
        self,
        offsets: NDArray[np.int64],  # (documents + 1,)
        codes: NDArray[np.uint8],  # (tokens, dim), or (tokens, packed width) with levels
        scale: float,
        cell_codes: NDArray[np.uint8],  # (cells, dim)
        cell_starts: NDArray[np.int32],  # (cells + 1,)
        cell_blocks: NDArray[np.int32],  # (cells + 1,)
        centroid_codes: NDArray[np.uint8],  # (blocks * 8 * dim,)
        list_starts: NDArray[np.int64],  # (centroids + 1,)
        lists: NDArray[np.int32] | NDArray[np.uint16],  # documents, or steps from one to the next
        norm: float | None = None,  # of the longest coded vector; None: 290 + sqrt(dim) / 2
        centroid_rows: NDArray[np.uint8] | None = None,  # (centroids, dim); this and the rest with 4 or 2 bits
        levels: NDArray[np.int8] | None = None,  # (4, 16) or (4, 4)
        token_centroids: NDArray[np.uint8] | None = None,  # (tokens, 3)
        spread: NDArray[np.float32] | None = None,  # (cells,)
        codebooks: NDArray[np.int8] | None = None,  # (dim / 4, 16, 4); goes with sketches
        sketches: NDArray[np.uint8] | None = None,  # (tokens, 2 + dim / 8 rounded up)
        saliences: NDArray[np.float32] | None = None,  # (tokens,)
        mean_weights: NDArray[np.float32] | None = None,  # (documents,); goes with list_weights
        list_weights: NDArray[np.uint8] | None = None,  # beside each entry of lists, in units of
        weight_unit: float = 0.0,
    ) -> None: ...
    def candidates(
        self, query: NDArray[np.float32], allowed: NDArray[np.uint8] | None, cells: int, centroids: int, count: int
    ) -> NDArray[np.int32]: ...
    def probe(
        self,
        query: NDArray[np.float32],
        allowed: NDArray[np.uint8] | None,  # (documents,), as `checked`
        cells: int,
        centroids: int,
        count: int,
        keep: int,
        checked: NDArray[np.uint8] | None,  # whose sketches may be read; None: all
        promise: float = ...,  # what documents must reach by their centroids, in units of scores
        sketch: float = ...,  # and by their sketches
        imputed: NDArray[np.float32] | None = None,  # (query tokens,) what a token counts where no centroid does
        floors: NDArray[np.float32] | None = None,  # (query tokens,) what it counts at least in a sketch
        weighs: bool = False,  # by list_weights, without promise, sketch and keep
        weights: NDArray[np.float32] | None = None,  # (query tokens,) u_q, which the query's vectors have already
        divides: bool = False,  # scores are averages by Z = ΣA, not sums
    ) -> tuple[
        NDArray[np.int32],  # the best `keep` (0: all), or documents whose sketches must be checked first
        bool,  # which of the two
        float,  # what the last one reached by its centroids, where there were more; else −inf
        float,  # and by its sketch
        NDArray[np.float32],  # (query tokens,) what was imputed; empty if nothing was probed
    ]: ...
    def rerank(
        self, query: NDArray[np.float32], listed: NDArray[np.int32], keep: int, patience: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], float]: ...
    def rerank_weighed(
        self,
        query: NDArray[np.float32],
        listed: NDArray[np.int32],
        keep: int,
        weights: NDArray[np.float32] | None,
        divides: bool,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]: ...
    def best(
        self,
        query: NDArray[np.float32],
        listed: NDArray[np.int32],
        keep: int,
        patience: int,
        missing: NDArray[np.float32] | None = None,  # (query tokens,) what each counts at the least
        least: float = ...,  # documents that all but surely score less are left out
    ) -> tuple[
        NDArray[np.int32],  # (kept,): documents, best first, ties by document
        NDArray[np.float32],  # (kept,): float32 of the sum, in double precision, of the row of similarities
        float,  # no integer score by which documents were kept is further off
        NDArray[np.int32],  # (kept, query tokens): the document's token that counts, the first of equals, from 0; or -1
        NDArray[np.float32],  # (kept, query tokens): what it counts; `missing` where the token is -1
    ]: ...
    def score(self, query: NDArray[np.float32], listed: NDArray[np.int32]) -> NDArray[np.float32]: ...
    def decode(self, listed: NDArray[np.int32], out: NDArray[np.float32]) -> None: ...
    def scan_tokens(
        self,
        into: TokenRetrieval,
        query: NDArray[np.float32],
        allowed: NDArray[np.uint8] | None,
        base: int,  # what documents here are counted from
        certain: bool,  # whether bounds hold always, or all but always
    ) -> None: ...
    def sample_tokens(
        self,
        into: TokenRetrieval,
        query: NDArray[np.float32],
        rows: NDArray[np.int64],  # tokens to be compared
    ) -> None: ...
    def token_sample(self, rows: NDArray[np.int64]) -> TokenSample | None: ...
    def retrieve_sampled(
        self,
        into: TokenRetrieval,
        query: NDArray[np.float32],
        sample: TokenSample,
        cells: int,  # that are visited for each query token
    ) -> bool: ...

class TokenSample:
    """Some tokens by their cells, for m_i at a fraction of a scan: native/token_sample.hpp."""

class TokenRetrieval:
    """The best k′ tokens of each query token, over any number of segments: native/token_retrieval.hpp."""

    def __init__(self, tokens: int, k_prime: int) -> None: ...
    def add(
        self,
        similarities: NDArray[np.float32],  # (query tokens, tokens)
        offsets: NDArray[np.int64],  # (documents + 1,)
        documents: NDArray[np.int64],  # which of all documents each is
    ) -> None: ...
    def raise_floors(self, floors: NDArray[np.float32]) -> None: ...  # (query tokens,): what is kept reaches these
    def settle(self) -> NDArray[np.float32]: ...  # (query tokens,): the k′-th similarities
    def similarities(self, most: int) -> NDArray[np.float32]: ...  # (query tokens, most): the best, -inf where fewer
    def score(
        self,
        lengths: NDArray[np.int64],  # (documents,) in tokens
        missing: NDArray[np.float32] | None,  # (query tokens,) m_i
        divides_by_query: bool,
        wanted: int,
        ranked: NDArray[np.uint8] | None,  # (documents,)
    ) -> tuple[
        NDArray[np.int32],  # documents, best first
        NDArray[np.float32],  # scores
        NDArray[np.float32],  # (documents, query tokens): what each counts, -inf where nothing does
        NDArray[np.int32],  # (documents, query tokens): the token that counts, or -1
    ]: ...
    def maxima(
        self, documents: int
    ) -> tuple[
        NDArray[np.int32],  # all documents with a retrieved token
        NDArray[np.float32],  # (documents, query tokens): the best retrieved similarity, or -inf
        NDArray[np.int32],  # its token, or -1
        NDArray[np.int32],  # how many were retrieved
    ]: ...

class CorpusIndexTables:
    """What both forms of a corpus index have: native/corpus_index.hpp."""

    def __init__(
        self,
        starts: NDArray[np.int64],  # (documents + 1,)
        tokens: NDArray[np.int32],  # (alphabet,)
        first: NDArray[np.uint32],  # (alphabet + 2,)
        symbols: NDArray[np.int32],  # (vocabulary,)
        head_first: NDArray[np.int64],  # (depths + 1,)
        head_lows: NDArray[np.uint32],  # (heads,)
        head_offsets: NDArray[np.int64],  # (heads + 1,)
        head_symbols: NDArray[np.uint16] | NDArray[np.uint32],
        head_stops: NDArray[np.uint32],
    ) -> None: ...

class CorpusIndex:
    """A corpus index: native/corpus_index.hpp. `weft.generative.corpus_index` is the interface for people."""

    @staticmethod
    def suffix(
        tables: CorpusIndexTables, text: NDArray[np.uint16] | NDArray[np.uint32], suffixes: NDArray[np.uint32]
    ) -> CorpusIndex: ...
    @staticmethod
    def fm(
        tables: CorpusIndexTables,
        lines: NDArray[np.uint64],
        zeros: NDArray[np.uint32],
        leaves: NDArray[np.uint32],
        marks: NDArray[np.uint64],
        values: NDArray[np.uint32],
        rows: NDArray[np.uint32],
        rate: int,
        origin: int,
    ) -> CorpusIndex: ...
    def advance(
        self,
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        depth: NDArray[np.int32],
        beams: NDArray[np.int64] | None,
        tokens: NDArray[np.int32],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]: ...
    def continuations(
        self, low: NDArray[np.int64], high: NDArray[np.int64], depth: NDArray[np.int32], counted: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]: ...
    def count(self, tokens: list[int]) -> int: ...
    def find(
        self, offsets: NDArray[np.int64], tokens: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
    def locate(
        self, low: NDArray[np.int64], high: NDArray[np.int64], depth: NDArray[np.int32], limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]: ...
    def read(self, documents: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]: ...
    def seal(
        self,
        documents: NDArray[np.int64],
        key_offsets: NDArray[np.int64],
        key_tokens: NDArray[np.int32],  # keys in order, none twice
        key_weights: NDArray[np.float64],
        unigrams: NDArray[np.float64],  # (vocabulary,)
        beta: float,
    ) -> tuple[
        NDArray[np.float64],  # (documents,): scores
        NDArray[np.int64],  # (documents + 1,): each one's part of the next three
        NDArray[np.int32],  # a key's number, or -1 - token
        NDArray[np.int32],  # where it begins
        NDArray[np.float64],  # its cover
    ]: ...

def corpus_index_fm(
    text: NDArray[np.uint16] | NDArray[np.uint32],
    suffixes: NDArray[np.int32],  # of the text read backwards
    alphabet: int,
    rate: int,
) -> tuple[
    NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint32], int
]: ...  # lines, zeros, leaves, marks, values, origin
