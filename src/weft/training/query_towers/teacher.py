"""The vectors of short texts by a model, which its query towers learn to give.

Texts are encoded in parts, each kept as a file: an interrupted run goes on where it stopped, and one folder serves
every tower of the same model and texts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.encoders import Encoder
from weft.encoders.backend import QUERY, Batches
from weft.encoders.tokenizing import Reader

PART = 4096
"""Texts of a part."""
AT_ONCE = 1024
"""The model gets at most this many tokens at once."""


@dataclass(frozen=True, eq=False)
class Taught:
    """Texts of N tokens in all with the model's own vectors.

    `ids` (N,) int32; `vectors` (N, dim) float16; `scores` (N,) float16, the query head's saliences before the gate;
    `offsets` (texts + 1,).
    """

    ids: NDArray[np.int32]
    vectors: NDArray[np.float16]
    scores: NDArray[np.float16]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def teach(encoder: Encoder, texts: Sequence[str], folder: Path) -> Iterator[Taught]:
    """Yield the texts part by part; parts that the folder does not hold yet are encoded and kept there."""
    reader = Reader(encoder.tokenizer, encoder.settings.query)
    for start in range(0, len(texts), PART):
        some = list(texts[start : start + PART])
        path = folder / f"{encoder.fingerprint[:8]}-{_digest(some)}.npz"
        if not path.exists():
            _keep(path, _encode(encoder, reader, some))
        with np.load(path, allow_pickle=False) as held:
            yield Taught(**{name: held[name] for name in ("ids", "vectors", "scores", "offsets")})


def _encode(encoder: Encoder, reader: Reader, texts: list[str]) -> dict[str, NDArray[Any]]:
    tokens = reader.read(texts)
    lengths = np.array([len(t) for t in tokens])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    vectors = np.empty((offsets[-1], encoder.dim), np.float16)
    scores = np.zeros(offsets[-1], np.float16)
    groups = []
    for length in np.unique(lengths):  # texts of one length: nothing is padded
        same = np.flatnonzero(lengths == length)
        groups += np.array_split(same, -(-len(same) * length // AT_ONCE))
    batches = Batches([[tokens[i] for i in group] for group in groups], encoder.settings.pad_id)
    for group, output in zip(groups, encoder.backend.run(batches, QUERY, 1), strict=True):
        for row, i in enumerate(group):
            vectors[offsets[i] : offsets[i + 1]] = output.vectors[row]
            if output.scores is not None:
                scores[offsets[i] : offsets[i + 1]] = output.scores[row]
    ids = np.concatenate([t.ids for t in tokens]).astype(np.int32)
    return {"ids": ids, "vectors": vectors, "scores": scores, "offsets": offsets}


def _keep(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    with open(part, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    part.replace(path)


def _digest(texts: list[str]) -> str:
    found = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:16]
