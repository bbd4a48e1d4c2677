"""Writing segments: flat, with a codebook trained for them, or with the codebook of another segment.

A merge copies codes. The codebook of the largest segment goes on as long as it fits (`extended`): until there are
`GROWN` times the tokens it was trained for, for the number of cells should grow with them, and as long as newcomers lie
about as near to its cells as the tokens it was trained on (`DRIFT`), within the range of its codes. Otherwise a new one
is trained, and tokens keep their byte codes wherever the scale can stay. A codebook of documents that are not in the
segment is not taken, though it would save the training: sketches by it are a little low, and documents then fail to
reach the bar that other segments set (recall@10 of a stream .95 instead of .99).

Shards of one index share the scale of their codes and their cells (`Shared`), found by a sample of all of them; the
centroids within a cell are a segment's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.storage.arrays import Streamed, scratch_array, write_arrays
from weft.storage.codecs import clustering
from weft.storage.codecs.base import Codebook, Codec, Columns, Made
from weft.storage.segments.coded import CodedSegment
from weft.storage.segments.pieces import Coded, Given, Joined, Piece
from weft.types import TokenVectors

ROTATION_SEED = 1
"""The same for every segment, so that codes can be copied from one to another."""
GROWN = 1.5
"""A codebook serves up to this many times the tokens that it was trained for."""
DRIFT = 1.3
"""It is trained anew where the mean squared distance of newcomers to its cells is this many times the usual one."""
FINE_BELOW = 1_000_000
"""A segment of fewer tokens has more centroids for its size, for they would lie too far apart,"""
FINEST = 4
"""up to this many times as many."""
STEPS = 16
"""Scales in an octave."""
_DTYPES = {
    "token_ids": "<i4",
    "salience": "<f4",
    "span_steps": "u1",
    "span_lengths": "u1",
    "shades": "u1",
    "finds": "u1",
}


class Shared(NamedTuple):
    """What coded segments of several indexes have in common."""

    scale: float
    """Units of the codes in a unit of the vectors"""
    cells: clustering.Bytes
    """(K, size)"""

    @classmethod
    def of(cls, sample: TokenVectors, tokens: int) -> Shared:
        """Find it by a sample, for segments of so many tokens.

        Examples
        --------
        >>> sample = np.random.default_rng(0).standard_normal((90, 8)).astype(np.float32)
        >>> Shared.of(TokenVectors.from_list([sample]), 400).cells.shape
        (22, 8)
        """
        matrix, given = clustering.rotation(sample.dim, ROTATION_SEED), Given(sample)
        scale = _scale(clustering.choose_scale(given.rotated(matrix), sample.n_tokens), None)
        codes = np.concatenate(list(given.coded(matrix, scale)))
        count = min(clustering.number_of_cells(tokens), len(codes))
        return cls(scale, clustering.find_cells(codes, count, np.random.default_rng(0)))

    def suits(self, tokens: int) -> bool:
        """Whether a segment of so many tokens would have about as many cells of its own."""
        return 0.5 <= clustering.number_of_cells(tokens) / len(self.cells) <= 2


def write_segment(
    path: Path,
    pieces: Sequence[Piece],
    codec: Codec | None,
    *,
    numbers: NDArray[np.int64] | None = None,
    shared: Shared | None = None,
) -> None:
    """Write documents as one segment, safe on disk when this returns.

    Parameters
    ----------
    path : Path
        Must not exist yet.
    pieces : sequence of Piece
        Of one kind: the same dimension, precision and columns.
    codec : Codec, optional
        How tokens are stored; None leaves the vectors as they are.
    numbers : array of int, optional
        The catalogue's numbers of the documents, where they do not simply follow each other.
    shared : Shared, optional
        Taken instead of what would be found for this segment, where it suits it.
    """
    joined = Joined(pieces)
    first, tokens = pieces[0], joined.n_tokens
    columns: Columns = {"offsets": joined.offsets.astype("<i8")}
    if numbers is not None:
        columns["documents"] = numbers.astype("<i8")
    full_lengths = joined.full_lengths()
    if full_lengths is not None:
        columns["full_lengths"] = full_lengths.astype("<i4")
    for name in first.columns:
        columns[name] = Streamed(np.dtype(_DTYPES[name]), (tokens,), joined.column(name))
    if "span_steps" in first.columns:
        columns["span_listed"] = joined.apart().astype("<i4")
    info: dict[str, Any] = {"dim": first.dim, "dtype": first.dtype.str}
    if codec is None:
        values = Streamed(first.dtype.newbyteorder("<"), (tokens, first.dim), joined.values())
        write_arrays(path, {**columns, "values": values}, info)
        return
    donor = _donor(joined, codec) if shared is None else None
    # Byte codes are read over and over: on disk, so that memory does not grow with the segment.
    with scratch_array(path.parent, np.uint8, (tokens, clustering.padded_dim(first.dim))) as codes:
        coded = Coded(joined, codes)
        made = None if donor is None else extended(coded, donor)
        if made is None:
            made = trained(coded, codec, None if donor is None else donor.scale, shared)
        codec.write(path, columns, info, made)


def _donor(joined: Joined, codec: Codec) -> CodedSegment | None:
    """Return the largest segment of this codec among the pieces."""
    segments = [piece.segment for piece in joined.pieces if piece.segment is not None]
    donors = [donor for segment in segments if (donor := segment.donor(codec)) is not None]
    return max(donors, key=lambda donor: donor.n_tokens, default=None)


def trained(coded: Coded, codec: Codec, known: float | None, shared: Shared | None = None) -> Made:
    """Train a codebook for documents; `known` is the scale of codes that they have, kept where it still fits."""
    joined, cells = coded.joined, None
    matrix = clustering.rotation(joined.pieces[0].dim, ROTATION_SEED)
    if shared is not None and not any(_outside(part, shared.scale) for part in joined.rotated(matrix)):
        scale, cells = shared.scale, shared.cells if shared.suits(joined.n_tokens) else None
    else:
        scale = _scale(clustering.choose_scale(joined.rotated(matrix), joined.n_tokens), known)
    coded.fill(matrix, scale)
    finer = min(max(joined.n_tokens / FINE_BELOW, 1 / FINEST), 1)
    found = clustering.cluster(coded.codes, tokens_per_centroid=codec.tokens_per_centroid * finer, cells=cells)
    spread = found.spread / np.float32(scale)
    book = Codebook(matrix, scale, found.cells, found.cell_starts, found.centroids, spread, joined.n_tokens)
    nothing = np.zeros(0, np.int64)
    return Made(
        coded,
        book,
        found.assigned,
        (nothing, nothing),
        salience=_column(joined, "salience"),
        finds=_column(joined, "finds"),
    )


def _scale(largest: float, known: float | None) -> float:
    """Choose a scale: the known one where it fits, or one of a few, so that segments coded apart have the same."""
    if known is not None and 0.7 * largest <= known <= largest:
        return known
    return float(2.0 ** (np.floor(np.log2(largest) * STEPS) / STEPS))


def extended(coded: Coded, donor: CodedSegment) -> Made | None:
    """Code documents with the codebook of a segment that many of them come from; None where it does not fit."""
    book, joined = donor.codebook(), coded.joined
    salience, weights = _column(joined, "salience"), donor.codec.list_weights(donor.arrays)
    if salience is not None and weights is None:  # an older segment
        return None
    if book is None or joined.n_tokens > GROWN * book.trained:
        return None
    newcomers = Joined([piece for piece in joined.pieces if piece.segment is not donor])
    if any(_outside(part, book.scale) for part in newcomers.rotated(book.matrix)):
        return None
    coded.fill(book.matrix, book.scale)
    assigned = np.full(joined.n_tokens, -1, dtype=np.int32)
    copied = np.full(joined.n_tokens, -1, dtype=np.int64)
    place = np.full(len(donor), -1, dtype=np.int64)  # a document of the donor → its new ordinal
    start, document, lost = 0, 0, 0.0
    for piece in joined.pieces:
        stop = start + int(piece.lengths.sum())
        if piece.segment is donor:
            copied[start:stop] = donor.token_rows(piece.ordinals)
            place[piece.ordinals] = np.arange(document, document + len(piece.ordinals))
        else:
            for row in range(start, stop, clustering.CHUNK):
                part = slice(row, min(row + clustering.CHUNK, stop))
                assigned[part], distance = book.assign(coded.codes[part])
                lost += distance
        start, document = stop, document + len(piece.lengths)
    if lost > DRIFT * book.usual_spread * newcomers.n_tokens:
        return None
    centroids, documents = donor.codec.listed(donor.arrays)
    stay = place[documents] >= 0
    pairs = centroids[stay], place[documents][stay]
    pair_weights = None if salience is None or weights is None else weights[stay]
    return Made(coded, book, assigned, pairs, donor.arrays, copied, salience, pair_weights, _column(joined, "finds"))


def _column(joined: Joined, name: str) -> NDArray[Any] | None:
    """A column of all tokens; None where they have none."""
    if name not in joined.pieces[0].columns:
        return None
    return np.concatenate([np.zeros(0, _DTYPES[name]), *joined.column(name)])


def _outside(rotated: NDArray[np.float32], scale: float) -> bool:
    """Whether vectors leave the range of byte codes at a scale: any by its norm, or more than a few by a coordinate."""
    if not len(rotated):
        return False
    norm = np.sqrt(np.einsum("td,td->t", rotated, rotated).max())
    cut = np.abs(rotated).max(axis=1) * scale > 127.5
    return bool(norm * scale > clustering.CODE_NORM or cut.mean() > clustering.CUT)
