"""The engine in NumPy, as native/probing.hpp and native/reranking.hpp describe it, and random segments to try it on.

``python tests/native/engine_oracle.py`` prints what the engine answers to fixed problems at the level of ``WEFT_SIMD``:
`test_engine.py` starts it once for each level, because a process keeps the level it began with.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import numpy as np

from weft import _native, simd_level
from weft.storage.codecs import clustering as codec
from weft.storage.codecs import residual

NORM = 290.0
SPREAD = 0.32
KINDS = ("normal", "long", "short", "spike", "zero")


@dataclass
class Problem:
    """A coded segment, as arrays."""

    offsets: np.ndarray
    rows: np.ndarray  # (tokens, dim): bytes, decoded
    scale: float
    cells: np.ndarray  # (K, dim) bytes
    cell_starts: np.ndarray
    centroids: np.ndarray  # (C, dim) bytes
    lists: list[np.ndarray]
    norm: float
    stored: dict = field(default_factory=dict)  # how the rows are stored if not as they are
    codes: np.ndarray | None = None
    spread: np.ndarray | None = None  # (K,) in units of the vectors
    codebooks: np.ndarray | None = None  # (dim / 4, 16, 4)
    numbers: np.ndarray | None = None  # (tokens, dim / 4): entries of the sketches
    token_cells: np.ndarray | None = None

    @property
    def dim(self):
        return self.rows.shape[1]

    def arguments(self, *, steps=False) -> dict:
        blocks, cell_blocks = codec.block_layout(self.centroids, self.cell_starts)
        starts = np.concatenate([[0], np.cumsum([len(x) for x in self.lists])]).astype(np.int64)
        lists = np.concatenate([*self.lists, np.zeros(0)]).astype(np.int32)
        if steps:
            starts, lists = codec.listed_steps(starts, lists)
        return {
            "offsets": self.offsets,
            "codes": self.rows if self.codes is None else self.codes,
            "scale": self.scale,
            "cell_codes": self.cells,
            "cell_starts": self.cell_starts,
            "cell_blocks": cell_blocks,
            "centroid_codes": blocks,
            "list_starts": starts,
            "lists": lists,
            "norm": self.norm,
            **self.stored,
            **({} if self.spread is None else {"spread": self.spread}),
            **({} if self.numbers is None else {"codebooks": self.codebooks, "sketches": self.sketches()}),
        }

    def sketches(self) -> np.ndarray:
        """Two bytes of cell, then two numbers to a byte, the first in its low half."""
        rows = []
        for cell, numbers in zip(self.token_cells.tolist(), self.numbers.tolist(), strict=True):
            padded = [*numbers, 0] if len(numbers) % 2 else numbers
            pairs = [low + 16 * high for low, high in zip(padded[::2], padded[1::2], strict=True)]
            rows.append([cell % 256, cell // 256, *pairs])
        return np.array(rows, dtype=np.uint8).reshape(len(rows), 2 + -(-self.dim // 8))

    def engine(self, **options):
        return _native.Engine(**self.arguments(**options))


def coded(rng, count, dim, norm=NORM):
    """Random byte rows no longer than the codec makes them."""
    x = rng.standard_normal((count, dim)) * rng.choice([0.05, 1, 3], (count, 1))
    x *= rng.random((count, dim)) < rng.choice([0.1, 1.0], (count, 1))
    longest = max(np.sqrt((x**2).sum(axis=1)).max(initial=0), 1e-9)
    top = max(np.abs(x).max(initial=0), 1e-9)
    return codec.encode(x.astype(np.float32), min(127 / top, norm / longest))


def problem(rng, lengths, dim, *, cells=5, scale=300.0, bits=8) -> Problem:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    sizes = rng.integers(0, 12, cells)
    cell_starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    if bits != 8 and cell_starts[-1] == 0:
        cell_starts[-1] = 1
    centroids = coded(rng, int(cell_starts[-1]), dim)
    filled = np.flatnonzero(np.diff(offsets))
    lists = [np.sort(rng.permutation(filled)[: rng.integers(0, len(filled) + 1)]) for _ in centroids]
    made = Problem(
        offsets, coded(rng, int(offsets[-1]), dim), scale, coded(rng, cells, dim), cell_starts, centroids, lists,
        NORM + dim**0.5 / 2,
    )  # fmt: skip
    if rng.random() < 0.7:
        made.spread = (rng.random(cells) * rng.choice([0, 0.5, 5]) * 290 / scale).astype(np.float32)
    if rng.random() < 0.7:
        made.codebooks = rng.integers(-128, 128, (dim // 4, 16, 4)).astype(np.int8)
        made.numbers = rng.integers(0, 16, (len(made.rows), dim // 4))
        made.token_cells = rng.integers(0, cells, len(made.rows))
    if bits != 8:
        tables = np.sort(rng.integers(-60, 61, (4, 1 << bits)), axis=1).astype(np.int8)
        label = rng.integers(0, len(centroids), len(made.rows)) | rng.integers(0, 4, len(made.rows)) << 22
        labels = np.ascontiguousarray(label.astype("<u4")[:, None].view(np.uint8)[:, :3])
        numbers = rng.integers(0, 1 << bits, made.rows.shape).astype(np.uint8)
        made.codes = residual.pack(numbers, bits)
        made.stored = {"centroid_rows": centroids, "levels": tables, "token_centroids": labels}
        made.rows = expanded(numbers, label, centroids, tables)
        made.norm = max([float(np.sqrt(((rows - 128.0) ** 2).sum(axis=1).max(initial=0))) for rows in
                         (made.rows, made.cells, made.centroids)])  # fmt: skip
    return made


def expanded(numbers, label, centroids, tables) -> np.ndarray:
    """The bytes of residual codes, a coordinate at a time."""
    rows = np.zeros(numbers.shape, dtype=np.uint8)
    for t, x in np.ndindex(*numbers.shape):
        value = int(centroids[label[t] & (2**22 - 1), x]) + int(tables[label[t] >> 22, numbers[t, x]])
        rows[t, x] = min(max(value, 0), 255)
    return rows


def query(rng, n, dim, kind="normal") -> np.ndarray:
    q = rng.standard_normal((n, dim))
    if kind == "long":
        q *= 10.0 ** rng.uniform(0, 12, (n, 1))
    if kind == "short":
        q *= 1e-20
    if kind == "spike":
        q[np.arange(n), rng.integers(0, dim, n)] = 1e6
    if kind == "zero":
        q *= rng.random((n, 1)) < 0.5
    return q.astype(np.float32)


def rounded(q, norm, common) -> tuple[np.ndarray, np.ndarray]:
    """The query in whole numbers and what one of them is worth, for each token."""
    x = q.astype(np.float64)
    norms = np.sqrt((x**2).sum(axis=1))
    limit = 32767 / max(norm, 1.0) - q.shape[1] ** 0.5 / 2
    divisor = np.full_like(norms, norms.max(initial=0)) if common else norms
    scale = np.divide(limit, divisor, out=np.zeros_like(norms), where=divisor > 0)
    if not common:
        top = np.abs(x).max(axis=1, initial=0)
        scale = np.minimum(scale, np.divide(63, top, out=np.full_like(top, np.inf), where=top > 0))
    inverse = np.divide(1, scale, out=np.zeros_like(norms), where=scale > 0)
    return np.clip(np.rint(x * scale[:, None]), -63, 63).astype(np.int64), inverse


def documents(made: Problem) -> list[np.ndarray]:
    return np.split(made.rows, made.offsets[1:-1]) if len(made.offsets) > 1 else []


def integer_scores(made: Problem, q) -> np.ndarray:
    codes, inverse = rounded(q, made.norm, common=False)
    scores = [
        float((((rows.astype(np.int64) - 128) @ codes.T).max(axis=0) * inverse).sum()) / made.scale
        if len(rows)
        else 0.0
        for rows in documents(made)
    ]
    return np.array(scores).astype(np.float32)


def exact_similarities(made: Problem, q, document: int) -> np.ndarray:
    """(tokens of the document, n)"""
    rows = documents(made)[document]
    return ((rows - 128.0) / np.float64(np.float32(made.scale))) @ q.astype(np.float64).T


def exact_scores(made: Problem, q) -> np.ndarray:
    found = [exact_similarities(made, q, d) for d in range(len(made.offsets) - 1)]
    return np.array([float(s.max(axis=0).sum()) if len(s) else 0.0 for s in found])


def reach(values, wanted) -> int:
    """The largest value that at least `wanted` values reach; 0 where there are not so many."""
    ranked = np.sort(values)[::-1]
    return int(ranked[max(wanted, 1) - 1]) if 0 < wanted <= len(values) else 255 if wanted <= 0 else 0


def lifts(made: Problem) -> np.ndarray:
    """What is added to a cell's similarity where that is positive."""
    if made.spread is None:
        return np.zeros(len(made.cells), dtype=np.int64)
    longest = 32767 / max(made.norm, 1.0) - made.dim**0.5 / 2
    spread = made.spread.astype(np.float64) * np.float64(np.float32(made.scale))
    return np.clip(np.floor(SPREAD * spread * longest / 128), 0, 255).astype(np.int64)


def similarities(made: Problem, codes) -> np.ndarray:
    """(cells, tokens)"""
    return np.clip(((made.cells.astype(np.int64) - 128) @ codes.T) >> 7, 0, 255)


def sketch_scores(made: Problem, q) -> np.ndarray:
    """A document's sum over the query tokens of its best sketch, less what all have in common."""

    def share(values, of):
        return np.clip((values * of + (1 << 14)) >> 15, -128, 127)

    codes, _ = rounded(q, made.norm, common=True)
    cell_rows = share(similarities(made, codes), 22016)
    parts = codes.reshape(len(codes), -1, 4)
    scores = np.zeros(len(made.offsets) - 1, dtype=np.int64)
    for d, (first, last) in enumerate(zip(made.offsets, made.offsets[1:], strict=False)):
        best = np.full(len(q), -128, dtype=np.int64)
        for t in range(first, last):
            sums = [cell_rows[made.token_cells[t]], np.zeros(len(q), dtype=np.int64)]
            for s, number in enumerate(made.numbers[t]):
                entry = share(parts[:, s] @ made.codebooks[s, number].astype(np.int64), 172)
                sums[s % 2] = np.clip(sums[s % 2] + entry, -128, 127)
            best = np.maximum(best, np.clip(sums[0] + sums[1], -128, 127))
        scores[d] = best.sum()
    return scores


def sketched(made: Problem, q, allowed, cells, centroids, count, keep) -> list[int]:
    found = candidates(made, q, allowed, cells, centroids, count)
    if made.numbers is None or keep <= 0 or keep >= len(found) or len(q) == 0:
        return found
    scores = sketch_scores(made, q)
    return sorted(found, key=lambda d: -scores[d])[:keep]


def candidates(made: Problem, q, allowed, cells, centroids, count) -> list[int]:
    eligible = [
        d for d in range(len(made.offsets) - 1)
        if made.offsets[d] < made.offsets[d + 1] and (allowed is None or allowed[d])
    ]  # fmt: skip
    if len(eligible) <= count:
        return eligible
    codes, _ = rounded(q, made.norm, common=True)
    sums = np.zeros(len(made.offsets) - 1, dtype=np.int64)
    for token, to_cells in zip(codes, similarities(made, codes).T, strict=True):
        to_cells = np.where(to_cells > 0, np.minimum(to_cells + lifts(made), 255), 0)
        visited = np.flatnonzero(to_cells >= max(1, reach(to_cells, cells)))
        near = [c for cell in visited for c in range(made.cell_starts[cell], made.cell_starts[cell + 1])]
        values = np.clip(((made.centroids[near].astype(np.int64) - 128) @ token) >> 7, 0, 255)
        # The stored blocks are filled up with zeros: similarity 0, which never raises the threshold above 0.
        imputed = reach(values, centroids)
        excess = np.zeros_like(sums)
        for c, value in zip(near, values, strict=True):
            for d in made.lists[c]:
                excess[d] = max(excess[d], value - imputed)
        sums += excess
    return sorted(eligible, key=lambda d: (-sums[d], d))[: max(count, 0)]


def main() -> None:
    print(simd_level())
    for seed in range(60):
        rng = np.random.default_rng(seed)
        dim, n = int(rng.integers(1, 34)) * 4, int(rng.choice([0, 1, 7, 8, 9, 16, 17, 31, 32, 33, 70]))
        made = problem(rng, rng.integers(0, 9, 20), dim, bits=int(rng.choice([8, 4, 2])))
        q = query(rng, n, dim, KINDS[seed % len(KINDS)])
        engine = made.engine(steps=bool(seed % 2))
        listed = engine.candidates(q, None, 2, 6, 9)
        fewer, *_ = engine.probe(q, None, 2, 6, 9, 4, None)
        order, scores, error = engine.rerank(q, np.arange(20, dtype=np.int32), 20, 0)
        values = np.empty(made.rows.shape, dtype=np.float32)
        engine.decode(np.arange(20, dtype=np.int32), values)
        print(
            listed.tolist(), fewer.tolist(), order.tolist(), scores.tobytes().hex(), error, values.sum(dtype=np.float64)
        )


if __name__ == "__main__":
    sys.exit(main())
