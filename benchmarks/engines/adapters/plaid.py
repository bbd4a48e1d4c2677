"""PLAID (PyPI `colbert-ai`), indexed from given vectors: its indexer asks this module's encoder instead of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from colbert.data.collection import Collection
from colbert.indexing.collection_indexer import CollectionIndexer
from colbert.indexing.index_saver import IndexSaver
from colbert.infra.config.config import ColBERTConfig
from colbert.modeling.colbert import ColBERT
from colbert.search.index_storage import IndexScorer
from workload import DIM, LONGEST_QUERY

from adapters import Adapter

BITS = 4


class Engine(Adapter):
    """PLAID (colbert-ai)."""

    packages = ("colbert-ai", "torch", "faiss-cpu")

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        steps = ((1, 0.5, 256), (1, 0.45, 1024), (2, 0.45, 1024), (4, 0.4, 1024), (4, 0.4, 4096), (8, 0.3, 4096))
        return [{"ncells": c, "centroid_score_threshold": t, "ndocs": n} for c, t, n in steps]

    def build(self, work: Any, folder: Path) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        config = ColBERTConfig(dim=DIM, nbits=BITS, index_path=str(folder), kmeans_niters=4, rank=0, nranks=1)
        FromVectors(config, work).run([])

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        torch.set_num_threads(1)
        ColBERT.try_load_torch_extensions(use_gpu=False)
        self.scorer = IndexScorer(str(folder), use_gpu=False)
        self.configs: dict[str, ColBERTConfig] = {}

    def search(self, query: np.ndarray, k: int, **knob: Any) -> np.ndarray:
        config = self.configs.get(str(knob))
        if config is None:
            config = self.configs[str(knob)] = ColBERTConfig(dim=DIM, query_maxlen=LONGEST_QUERY, **knob)
        documents, _ = self.scorer.rank(config, torch.from_numpy(query)[None])
        return np.array(documents[:k], np.int64)


class FromVectors(CollectionIndexer):
    """The library's indexer for vectors that exist already; a passage is the number of its document."""

    def __init__(self, config: ColBERTConfig, work: Any) -> None:
        self.verbose, self.use_gpu = 1, False
        self.config, self.rank, self.nranks = config, config.rank, config.nranks
        self.collection = Collection(data=[str(d) for d in range(work.documents)])
        self.encoder = Encoder(work)
        self.saver = IndexSaver(config)


class Encoder:
    """Stands where the library has its model."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def encode_passages(self, passages: list[str]) -> tuple[torch.Tensor, list[int]]:
        which = [int(passage) for passage in passages]
        vectors = np.concatenate([self.work.document(d) for d in which]).astype(np.float32)
        return torch.from_numpy(vectors), [int(self.work.lengths[d]) for d in which]
