"""What the shards of a build have in common: the scale of their codes and their cells, found once by a sample.

    codebooks/JOB.seg                   arrays, see `weft.storage.arrays`

Shards with one scale have the codes that one index over all documents would have, so an exhaustive search finds the
same scores. The centroids within cells, which lists are made of, are each shard's own: it knows its tokens best.
"""

from __future__ import annotations

import hashlib
import heapq
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from weft.cluster.blobs import NoSuchBlobError
from weft.cluster.store import ShardStore
from weft.encoders import Encoder
from weft.search import Index
from weft.sources.files import Source
from weft.storage import merger
from weft.storage.arrays import Arrays, write_arrays
from weft.storage.codecs.clustering import SAMPLES_PER_CELL, number_of_cells
from weft.storage.segments.writing import Shared
from weft.text_index import TextIndex
from weft.types import TokenVectors

DOCUMENTS = 20_000
"""A sample has at most this many documents."""
AT_ONCE = 64
"""Documents that are added to a sample together, until it is large enough."""


def known(store: ShardStore, job: str) -> Shared | None:
    """Return what the shards of a job share, None if nothing was found yet."""
    with tempfile.TemporaryDirectory(prefix="weft-codebook-") as folder:
        path = Path(folder) / "codebook.seg"
        try:
            store.blobs.download(_key(job), path)
        except NoSuchBlobError:
            return None
        stored = Arrays(path, copied=True)
        return Shared(float(stored.info["scale"]), stored["cells"].copy())


def find(store: ShardStore, job: str, sources: Iterable[Source], shards: int, encoder: Encoder) -> Shared | None:
    """Find what shards are to share, and store it; None if they will be too small to be coded.

    The sample is the same whoever takes it: the documents whose ids have the least hashes.
    """
    total = 0

    def counted(source: Source) -> Source:
        nonlocal total
        total += source.size
        return source

    sample = heapq.nsmallest(DOCUMENTS, map(counted, sources), key=_order)
    size = wanted = 0
    with tempfile.TemporaryDirectory(prefix="weft-codebook-") as folder:
        path = Path(folder)
        with Index.create(path / "sample.weft", encoder.dim, reading=False, merge="off") as index:
            texts = TextIndex(index, encoder)
            for start in range(0, len(sample), AT_ONCE):
                some = sample[start : start + AT_ONCE]
                texts.add_sources(some, progress=False)
                tokens, size = index.info()["tokens"], size + sum(source.size for source in some)
                wanted = round(tokens * total / max(size, 1) / shards)  # tokens of a shard
                if wanted < merger.CODED_TOKENS / 2:
                    return None
                if tokens >= SAMPLES_PER_CELL * number_of_cells(wanted):
                    break
            found = Shared.of(_vectors(index), wanted)
        write_arrays(path / "codebook.seg", {"cells": found.cells}, {"scale": found.scale})
        store.blobs.create(_key(job), path / "codebook.seg")
    return known(store, job)  # of two that are found at the same time the first counts


def _vectors(index: Index) -> TokenVectors:
    with index.view() as view:
        segments = [live.segment for live in view.segments]
        return TokenVectors.concatenate([segment.select(np.arange(len(segment))) for segment in segments])


def _order(source: Source) -> bytes:
    return hashlib.blake2b(source.id.encode("utf-8", "surrogatepass"), digest_size=8, person=b"weft sample").digest()


def _key(job: str) -> str:
    return f"codebooks/{job}.seg"
