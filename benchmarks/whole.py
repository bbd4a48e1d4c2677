"""Whole collections and large pools for the benchmarks, with their encodings kept on disk.

A collection of at most `WHOLE` documents is taken whole. A larger one is cut to a pool of ``--documents``: the
judged documents of a sample of its dev and test queries, BM25's best for each, and a random rest. All splits of a
collection share its documents, so a model encodes them once; the queries of each split are kept beside them. The files
are named after the model's fingerprint and precision and remember which texts they are of.

    python benchmarks/whole.py --data FOLDER --cache FOLDER --model FOLDER

encodes all of them ahead of time; stopped, it goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft import Encoder, TokenVectors
from weft.evaluation.bm25 import BM25
from weft.evaluation.pools import DEPTH, Pool, pool_of
from weft.evaluation.runs import Run
from weft.sources.beir import Collection

WHOLE = 6_300
"""A collection of at most this many documents is taken whole."""
DOCUMENTS = 6_000
"""Documents of a pool of a larger one."""
QUERIES = 300
"""Queries of a split, at most."""
SEED = 5

TRAINED = {"scifact", "squad-dev", "medquad", "acl-titles", "debian-packages"}
"""What weft-small was trained on (their training splits)."""
SPLITS: dict[str, tuple[str, ...]] = {
    "nfcorpus": ("dev", "test"),
    "squad-dev": ("dev", "test"),
    "debatewise": ("dev", "test"),
    "wikiqa": ("dev", "test"),
    "perspectrum": ("dev", "test"),
    "cosqa": ("dev", "test"),
    "insuranceqa-en": ("dev", "test"),
    "medquad": ("dev", "test"),
    "scifact": ("test",),  # its training split was trained on
    "cranfield": ("test",),
    "medline": ("test",),
    "cisi": ("test",),
    "dbpedia-entity-5k": ("test",),
    "msmarco-dl19-20-pool": ("dl19", "dl20"),
    "climate-fever-evidence": ("test",),
    "debian-packages": ("dev", "test"),
    "acl-titles": ("dev", "test"),
    "hotpotqa-mini": ("test",),
}
"""Collections in the order in which they are encoded, with their splits, the deciding one first."""
DEV = "dev"
"""Decisions are made on these splits; all others are reported."""


@dataclass(frozen=True)
class Cut:
    """A collection as it is measured: its documents, and queries with judgements by split."""

    name: str
    documents: dict[str, str]
    splits: dict[str, Pool]
    whole: bool

    @property
    def label(self) -> str:
        return f"{self.name} ({len(self.documents):,}{'' if self.whole else ', pool'})"

    def few(self, queries: int) -> Cut:
        """The same documents with at most so many queries of each split, taken evenly."""
        splits = {}
        for split, pool in self.splits.items():
            names = list(pool.queries)
            some = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, queries).astype(int))]
            kept = {q: pool.queries[q] for q in some}
            splits[split] = dataclasses.replace(pool, queries=kept, qrels={q: pool.qrels[q] for q in some})
        return dataclasses.replace(self, splits=splits)

    def bm25(self, split: str) -> Run:
        pool = self.splits[split]
        found = BM25(self.documents).search(list(pool.queries.values()), DEPTH)
        return {q: {r.id: r.score for r in ranking} for q, ranking in zip(pool.queries, found, strict=True)}


def read(data: Path, name: str, documents: int = DOCUMENTS) -> Cut:
    """Read a collection of `SPLITS` and cut it."""
    collections = {split: Collection.read(data / name, split) for split in SPLITS[name]}
    sampled = {split: _sample(collection) for split, collection in collections.items()}
    first = next(iter(sampled.values()))
    whole = len(first.documents) <= WHOLE
    queries = {k: v for c in sampled.values() for k, v in c.queries.items()}
    qrels = {k: v for c in sampled.values() for k, v in c.qrels.items()}
    merged = dataclasses.replace(first, queries=queries, qrels=qrels)
    pool = pool_of(merged, documents, len(queries), whole=whole, seed=SEED)
    splits = {}
    for split, collection in sampled.items():
        kept = {q: text for q, text in collection.queries.items() if q in pool.queries}
        own = {q: pool.qrels[q] for q in kept}
        splits[split] = Pool(f"{name}:{split}", pool.documents, kept, own, whole, {})
    return Cut(name, pool.documents, splits, whole)


def _sample(collection: Collection) -> Collection:
    chosen = list(collection.relevant())
    if len(chosen) > QUERIES:
        chosen = sorted(random.Random(SEED).sample(chosen, QUERIES))
    queries = {q: collection.queries[q] for q in chosen}
    return dataclasses.replace(collection, queries=queries, qrels={q: collection.qrels[q] for q in chosen})


class Encodings:
    """The token vectors of one encoder, computed once for each text list and kept in half precision."""

    def __init__(self, cache: Path, encoder: Encoder, threads: int = 1) -> None:
        self.encoder, self.threads = encoder, threads
        settings = encoder.settings
        lengths = f"{settings.query.length}-{settings.document.length}"
        self.folder = cache / f"{encoder.name}-{settings.precision}-{encoder.fingerprint[:8]}-{lengths}"

    def documents(self, cut: Cut) -> TokenVectors:
        return self._of(f"{cut.name}.documents", list(cut.documents.values()), query=False)

    def queries(self, cut: Cut, split: str) -> TokenVectors:
        texts = list(cut.splits[split].queries.values())
        return self._of(f"{cut.name}.{split}-{len(texts)}", texts, query=True)

    def _of(self, name: str, texts: list[str], query: bool) -> TokenVectors:
        path = self.folder / f"{name}.npz"
        mark = digest(texts)
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                held = dict(file)
            if str(held.pop("mark")) == mark:
                return TokenVectors.trusted(**{field: held.get(field) for field in _FIELDS})
        if len(texts) <= AT_ONCE:
            encode = self.encoder.encode_query if query else self.encoder.encode_document
            found = encode(texts, truncation="ignore", dtype=np.float16, threads=self.threads, salience=True)
        else:
            starts = range(0, len(texts), AT_ONCE)
            names = [f"{name}.parts/{start}" for start in starts]
            pieces = [self._of(n, texts[s : s + AT_ONCE], query) for n, s in zip(names, starts, strict=True)]
            found = TokenVectors.concatenate(pieces)
        arrays = {field: getattr(found, field) for field in _FIELDS if getattr(found, field) is not None}
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_suffix(".part"), "wb") as file:
            np.savez(file, mark=np.array(mark), **arrays)
        path.with_suffix(".part").rename(path)
        shutil.rmtree(self.folder / f"{name}.parts", ignore_errors=True)
        return TokenVectors.trusted(**{field: arrays.get(field) for field in _FIELDS})


AT_ONCE = 256
"""Texts that are encoded before they are saved; what was stopped goes on from there."""

_FIELDS = ("values", "offsets", "token_ids", "salience", "spans")


def digest(texts: list[str]) -> str:
    found = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR collections")
    parser.add_argument("--cache", type=Path, required=True, help="folder for encodings")
    parser.add_argument("--model", action="append", required=True, help="light folder, or weft-small; may be repeated")
    parser.add_argument("--collections", nargs="+", default=list(SPLITS))
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="of a pool of a larger collection")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in options.collections:
        cut = read(options.data, name, options.documents)
        for model in options.model:
            began = time.perf_counter()
            encodings = Encodings(options.cache, Encoder.load(model), options.threads)
            tokens = encodings.documents(cut).n_tokens
            asked = sum(len(encodings.queries(cut, split)) for split in cut.splits)
            took = time.perf_counter() - began
            print(f"{cut.label}: {model}, {tokens:,} tokens, {asked} queries, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
