"""LEMUR (arXiv 2601.21853): our own code, after the paper and the defaults of its authors' repository (not on PyPI).

A document's MaxSim is a sum over query tokens x of g(x), its best similarity with x. A small network is trained to
predict g for a sample of documents; its hidden layer then serves as features of x, and ordinary least squares gives
every document a weight vector, so that a query's summed features times the weights estimate MaxSim for all documents
at once. The first `rerank` are re-ranked exactly. Sizes and schedule are the authors' defaults: 2048 features, 100,000
tokens against 8192 documents, 10 epochs as in their README.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import torch
from workload import DIM, address, exact_rerank, kernels

from adapters import FULL_VECTOR, Adapter, folder_bytes

FEATURES, PROBES, SAMPLE, REGRESSION = 2048, 100_000, 8192, 16384
EPOCHS, BATCH, RATE, CLIP = 10, 512, 3e-3, 0.5


class Engine(Adapter):
    """LEMUR (from the paper), all documents."""

    packages = ("torch",)
    epochs = EPOCHS

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        return [{"rerank": r} for r in (25, 50, 100, 200, 400, 800, 1600)]

    def build(self, work: Any, folder: Path) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        rng = np.random.default_rng(0)
        net = features(trained=self.epochs > 0)
        if self.epochs:
            train(net, work, rng, self.epochs)
        torch.save(net.state_dict(), folder / "net.pt")
        np.save(folder / "weights.npy", regress(net, work, rng))

    def open(self, work: Any, folder: Path) -> None:
        torch.set_num_threads(1)
        self.work = work
        self.net = features(trained=self.epochs > 0)
        self.net.load_state_dict(torch.load(folder / "net.pt", weights_only=True))
        self.net.eval()
        self.weights = torch.from_numpy(np.load(folder / "weights.npy"))

    def bytes_on_disk(self, work: Any, folder: Path, knob: dict[str, Any]) -> int:  # noqa: ARG002
        return folder_bytes(folder) + work.tokens * FULL_VECTOR

    @torch.inference_mode()
    def search(self, query: np.ndarray, k: int, rerank: int) -> np.ndarray:
        summed = self.net(torch.from_numpy(query)).sum(0)
        found = torch.topk(self.weights @ summed, min(max(k, rerank), len(self.weights))).indices.numpy()
        return np.concatenate([exact_rerank(self.work, query, found[:rerank]), found[rerank:]])[:k]


class Random(torch.nn.Module):
    """Random features, for LEMUR without training."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(DIM, FEATURES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ self.weight)


def features(*, trained: bool) -> torch.nn.Module:
    if trained:
        return torch.nn.Sequential(torch.nn.Linear(DIM, FEATURES), torch.nn.LayerNorm(FEATURES), torch.nn.GELU())
    return torch.nn.Sequential(Random(), torch.nn.LayerNorm(FEATURES, elementwise_affine=False))


def probes(work: Any, rng: np.random.Generator, count: int) -> np.ndarray:
    """A sample of the corpus's token vectors, a multiple of 32 of them."""
    rows = np.sort(rng.choice(work.tokens, min(count, work.tokens) // 32 * 32, replace=False))
    return rng.permutation(work.vectors[rows].astype(np.float32))


def best_similarities(work: Any, documents: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """G of each document and query token, (documents, tokens)."""
    maxima = np.empty((len(documents), len(queries)), np.float32)
    for row, document in zip(maxima, documents, strict=True):
        offsets = np.ascontiguousarray(work.offsets[document : document + 2])
        kernels().probe_maxima_f16(
            address(work.vectors), address(offsets), ctypes.c_int64(1), address(queries),
            ctypes.c_int64(len(queries)), address(row),
        )  # fmt: skip
    return maxima


def train(net: torch.nn.Module, work: Any, rng: np.random.Generator, epochs: int) -> None:
    x = probes(work, rng, PROBES)
    sample = np.sort(rng.choice(work.documents, min(SAMPLE, work.documents), replace=False))
    y = torch.from_numpy(best_similarities(work, sample, x)).T.contiguous()
    x = torch.from_numpy(x)
    y.sub_(y.mean()).div_(y.std())
    head = torch.nn.Linear(FEATURES, y.shape[1], bias=False)
    parameters = [*net.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(head(net(x[rows])), y[rows]).backward()
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()


@torch.inference_mode()
def regress(net: torch.nn.Module, work: Any, rng: np.random.Generator) -> np.ndarray:
    """Least-squares weights of every document over the features, for targets less their overall mean."""
    x = probes(work, rng, REGRESSION)
    solve = torch.linalg.pinv(net(torch.from_numpy(x)), rtol=1e-6)  # (features, probes)
    weights = np.empty((work.documents, FEATURES), np.float32)
    mean = best_similarities(work, rng.choice(work.documents, min(500, work.documents), replace=False), x).mean()
    for first in range(0, work.documents, 1000):
        documents = np.arange(first, min(first + 1000, work.documents))
        weights[documents] = torch.from_numpy(best_similarities(work, documents, x) - mean) @ solve.T
    return weights
