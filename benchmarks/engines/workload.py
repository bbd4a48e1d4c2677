"""A workload (token vectors, queries, exact answers) and the brute-force kernels compiled for this machine.

A workload is a folder: `tokens.npy` float16 (T, 128), `doclens.npy`, `types.npy` (vocabulary id of each token),
`queries.npy` float32 (n, 32, 128), and `qlens.npy` where queries have fewer than 32 tokens. The exact answers are
computed once and kept beside them: `gt_ids.npy`, `gt_scores.npy`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DIM = 128
LONGEST_QUERY = 32
DEPTH = 100  # how many exact answers are kept for a query
REPORTED = 100  # queries that figures are reported on, the first ones; settings are chosen on the others


class Workload:
    """Documents as memory-mapped token vectors, and queries."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.name = self.folder.name
        self.lengths = np.load(self.folder / "doclens.npy")
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self.documents, self.tokens = len(self.lengths), int(self.offsets[-1])
        queries = np.load(self.folder / "queries.npy").astype(np.float32)
        lengths = self.folder / "qlens.npy"
        used = np.load(lengths) if lengths.exists() else np.full(len(queries), queries.shape[1])
        self.queries = [np.ascontiguousarray(query[:n]) for query, n in zip(queries, used, strict=True)]

    @functools.cached_property
    def vectors(self) -> np.ndarray:
        """All token vectors, float16 (T, 128), mapped."""
        return np.load(self.folder / "tokens.npy", mmap_mode="r")

    @functools.cached_property
    def types(self) -> np.ndarray:
        return np.load(self.folder / "types.npy")

    @functools.cached_property
    def owner(self) -> np.ndarray:
        """The document of each token."""
        return np.repeat(np.arange(self.documents, dtype=np.int32), self.lengths)

    def document(self, number: int) -> np.ndarray:
        return self.vectors[self.offsets[number] : self.offsets[number + 1]]

    def truth(self) -> np.ndarray:
        """The exact best documents of every query, (n, 100); computed at the first call and kept in the folder."""
        path = self.folder / "gt_ids.npy"
        if not path.exists():
            print(f"{self.name}: exact answers for {len(self.queries)} queries", file=sys.stderr, flush=True)
            scores = exact_scores(self, self.queries)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
            np.save(self.folder / "gt_scores.npy", np.take_along_axis(scores, order, 1))
            np.save(path, order.astype(np.int32))
        return np.load(path)


def recall(found: list[np.ndarray], truth: np.ndarray, k: int) -> float:
    """Mean share of the exact top k that is among the first k found."""
    shares = [len(np.intersect1d(f[:k], t[:k])) / min(k, len(t)) for f, t in zip(found, truth, strict=False)]
    return float(np.mean(shares))


# -- kernels -----------------------------------------------------------------------------------------


def compiler() -> str:
    """The compiler of the kernels: $CXX, else clang++ (whose code is the faster one here), else g++."""
    return os.environ.get("CXX") or next((name for name in ("clang++", "g++") if shutil.which(name)), "c++")


@functools.cache
def kernels() -> ctypes.CDLL:
    """brute.cpp as a library, compiled for this machine when it is not yet or is older than its source."""
    source = HERE / "brute.cpp"
    target = Path(os.environ.get("WEFT_BENCH_LIB", HERE / "libbrute.so"))
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        part = target.with_suffix(f".{os.getpid()}.so")
        flags = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run([compiler(), *flags, "-o", str(part), str(source)], check=True)
        part.replace(target)
    return ctypes.CDLL(str(target))


def address(array: np.ndarray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.c_void_p)


def exact_scores(work: Workload, queries: list[np.ndarray]) -> np.ndarray:
    """Exact MaxSim (fp16 vectors, fp32 arithmetic) of each query with every document, (n, documents)."""
    lengths = np.array([len(query) for query in queries], np.int32)
    packed = np.zeros((len(queries), LONGEST_QUERY, DIM), np.float32)
    for row, query in zip(packed, queries, strict=True):
        row[: len(query)] = query
    scores = np.empty((len(queries), work.documents), np.float32)
    kernels().score_all_f16(
        address(work.vectors), address(work.offsets), ctypes.c_int64(work.documents),
        address(packed), address(lengths), ctypes.c_int64(len(queries)), address(scores),
    )  # fmt: skip
    return scores


def exact_rerank(work: Workload, query: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """The given documents in the order of their exact scores."""
    documents = np.ascontiguousarray(documents, np.int32)
    scores = np.empty(len(documents), np.float32)
    kernels().score_some_f16(
        address(work.vectors), address(work.offsets), address(documents), ctypes.c_int64(len(documents)),
        address(query), len(query), address(scores),
    )  # fmt: skip
    return documents[np.argsort(-scores, kind="stable")]


def best(scores: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k highest scores, highest first."""
    if k >= len(scores):
        return np.argsort(-scores, kind="stable")
    top = np.argpartition(-scores, k)[:k]
    return top[np.argsort(-scores[top], kind="stable")]
