"""The stream: synthetic documents, the order of writes and searches, and the exact answers, all made once and kept.

    python benchmarks/stream/workload.py FOLDER DOCUMENTS

Vectors have the cluster structure of contextual token embeddings: a Zipf vocabulary of anisotropic token types,
topics with vocabularies of their own, a direction for each topic and each document, noise. A query takes 12 tokens of
a document that is live when it is asked, perturbs them lightly and again heavily, and adds 8 tokens of its topic.

N documents are added. Among the adds, N / 10 upserts give a live document new vectors and N / 20 deletes remove one,
in blocks of 100 operations that touch no document twice. A search is due after every 50 operations.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DIM = 128
QUERY_TOKENS = 32
K = 10
GROUP = 100  # operations
SEARCH_EVERY = 50  # operations
SAMPLED = 200  # searches whose exact answers are computed
FINAL = 100  # queries asked of the finished index
TUNING = 50  # queries that settings are chosen by, apart from the reported ones
ADD, UPSERT, DELETE = 0, 1, 2
NEVER = np.iinfo(np.int64).max
STEP = 500  # texts made or scored at a time


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


# -- vectors -----------------------------------------------------------------------------------------


class Language:
    """What the texts are drawn from: token types, topics and the shape of the noise."""

    def __init__(self, documents: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        spectrum = (np.arange(1, DIM + 1) ** -0.3).astype(np.float32)
        self.spectrum = spectrum / np.linalg.norm(spectrum)
        self.rotation = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0].astype(np.float32)
        types, topics = int(6 * np.sqrt(90 * documents)), max(64, int(2 * np.sqrt(documents)))
        self.types, self.topics = unit(self.noise(rng, types)), unit(self.noise(rng, topics))
        self.type_share = zipf(types)
        self.topic_weight = np.diff(zipf(topics, 0.7), prepend=0)
        own = min(types, 400)
        self.own_types = np.stack([rng.choice(types, own, replace=False) for _ in range(topics)])
        self.own_share = zipf(own)

    def noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Anisotropic, of unit length on average."""
        return (rng.standard_normal((*shape, DIM), dtype=np.float32) * self.spectrum) @ self.rotation

    def of_topic(self, rng: np.random.Generator, topic: np.ndarray) -> np.ndarray:
        """Token types from the topics' own vocabularies."""
        return self.own_types[topic, draw(rng, self.own_share, len(topic))]

    def texts(self, rng: np.random.Generator, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token vectors of some texts, end to end, and the topic of each text."""
        n, of_text = int(lengths.sum()), np.repeat(np.arange(len(lengths)), lengths)
        topic = rng.choice(len(self.topics), len(lengths), p=self.topic_weight)
        second = rng.choice(len(self.topics), len(lengths), p=self.topic_weight)
        second = np.where(rng.random(len(lengths)) < 0.3, second, topic)
        of_token = np.where(rng.random(n) < 0.5, topic[of_text], second[of_text])
        anywhere = draw(rng, self.type_share, n)
        types = np.where(rng.random(n) < 0.45, self.of_topic(rng, of_token), anywhere)
        own = unit(self.noise(rng, len(lengths)))
        vectors = self.types[types] + 0.45 * self.topics[of_token] + 0.35 * own[of_text] + 0.45 * self.noise(rng, n)
        return unit(vectors), topic

    def query(self, rng: np.random.Generator, text: np.ndarray, topic: int) -> np.ndarray:
        some = text[rng.choice(len(text), 12, replace=False)].astype(np.float32)
        of_topic = self.types[self.of_topic(rng, np.full(8, topic))] + 0.45 * self.topics[topic]
        return unit(
            np.concatenate(
                [
                    unit(some + 0.85 * self.noise(rng, 12)),
                    unit(some + 1.2 * self.noise(rng, 12)),
                    unit(of_topic + 0.65 * self.noise(rng, 8)),
                ]
            )
        )


def zipf(n: int, power: float = 1.0) -> np.ndarray:
    """Cumulative shares of n items."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -power
    return np.cumsum(weights / weights.sum())


def draw(rng: np.random.Generator, share: np.ndarray, n: int) -> np.ndarray:
    return np.searchsorted(share, rng.random(n)).clip(0, len(share) - 1)


# -- operations --------------------------------------------------------------------------------------


def operations(documents: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 3): kind, document, text (-1 for a delete). Texts are numbered in the order in which they arrive."""
    first = min(GROUP, documents)  # the first block only adds: there is nothing to change yet
    kinds = np.repeat([ADD, UPSERT, DELETE], [documents - first, documents // 10, documents // 20])
    kinds = np.concatenate([np.full(first, ADD), rng.permutation(kinds)])
    rows = np.empty((len(kinds), 3), np.int64)
    live: list[int] = []
    documents = texts = 0
    for start in range(0, len(kinds), GROUP):
        block = range(start, min(start + GROUP, len(kinds)))
        changing = [i for i in block if kinds[i] != ADD]
        places = dict(zip(changing, rng.choice(len(live), len(changing), replace=False).tolist(), strict=True))
        new: list[int] = []
        for i in block:
            kind = int(kinds[i])
            rows[i] = kind, documents if kind == ADD else live[places[i]], -1 if kind == DELETE else texts
            if kind == ADD:
                new.append(documents)
            documents, texts = documents + (kind == ADD), texts + (kind != DELETE)
        for place in sorted((places[i] for i in changing if kinds[i] == DELETE), reverse=True):
            live[place] = live[-1]  # the last takes the place of the one that goes
            live.pop()
        live += new
    return rows


def lifetimes(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every text its document, the operation that brought it and the one that ended it (or NEVER)."""
    count = int((rows[:, 0] != DELETE).sum())
    document, born, died = np.empty(count, np.int64), np.empty(count, np.int64), np.full(count, NEVER)
    current: dict[int, int] = {}
    for i, (kind, of, text) in enumerate(rows.tolist()):
        if kind != ADD:
            died[current[of]] = i
        if kind == DELETE:
            del current[of]
        else:
            current[of] = text
            document[text], born[text] = of, i
    return document, born, died


@dataclass(frozen=True)
class Group:
    """Consecutive operations."""

    start: int
    rows: np.ndarray

    @property
    def end(self) -> int:
        return self.start + len(self.rows)


class Workload:
    """A stream on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.settings = json.loads((self.folder / "settings.json").read_text(encoding="utf-8"))
        self.documents: int = self.settings["documents"]
        self.rows = np.load(self.folder / "operations.npy")
        self.offsets = np.load(self.folder / "offsets.npy")
        self.vectors = np.load(self.folder / "tokens.npy", mmap_mode="r")
        self.asked_at = np.load(self.folder / "asked_at.npy")  # operations done before each query
        self.queries = np.load(self.folder / "queries.npy")
        self.tuning = np.load(self.folder / "tuning.npy")

    def text(self, number: int) -> np.ndarray:
        return np.array(self.vectors[self.offsets[number] : self.offsets[number + 1]])

    def groups(self, size: int) -> Iterator[Group]:
        for start in range(0, len(self.rows), size):
            yield Group(start, self.rows[start : start + size])

    def due(self, operation: int) -> int | None:
        """The query to ask when so many operations are done."""
        at = np.searchsorted(self.asked_at[:-FINAL], operation)
        return int(at) if at < len(self.asked_at) - FINAL and self.asked_at[at] == operation else None

    @property
    def final(self) -> range:
        """Queries for the finished index."""
        return range(len(self.queries) - FINAL, len(self.queries))


def make(folder: Path, documents: int, seed: int = 14) -> None:
    """Write a workload, a few hundred texts in memory at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    language = Language(documents, seed)
    rows = operations(documents, rng)
    _, born, died = lifetimes(rows)
    lengths = rng.integers(60, 121, len(born))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    asked_at = np.concatenate([np.arange(SEARCH_EVERY, len(rows) + 1, SEARCH_EVERY), np.full(FINAL, len(rows))])
    target = np.array([pick(rng, born, died, int(at)) for at in asked_at])
    tuned = np.array([pick(rng, born, died, len(rows)) for _ in range(TUNING)])
    queries = np.empty((len(asked_at), QUERY_TOKENS, DIM), np.float32)
    tuning = np.empty((TUNING, QUERY_TOKENS, DIM), np.float32)
    tokens = np.lib.format.open_memmap(folder / "tokens.npy", "w+", np.float16, (int(offsets[-1]), DIM))
    for start in range(0, len(lengths), STEP):
        stop = min(start + STEP, len(lengths))
        vectors, topic = language.texts(np.random.default_rng([seed, start]), lengths[start:stop])
        tokens[offsets[start] : offsets[stop]] = vectors
        asking = np.random.default_rng([seed, start, 1])
        for targets, into in ((target, queries), (tuned, tuning)):
            for i in np.flatnonzero((targets >= start) & (targets < stop)):
                text = slice(offsets[targets[i]] - offsets[start], offsets[targets[i] + 1] - offsets[start])
                into[i] = language.query(asking, vectors[text], int(topic[targets[i] - start]))
    tokens.flush()
    arrays = {"operations": rows, "offsets": offsets, "asked_at": asked_at, "queries": queries, "tuning": tuning}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    settings = {"documents": documents, "texts": len(lengths), "tokens": int(offsets[-1]), "seed": seed}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")


def pick(rng: np.random.Generator, born: np.ndarray, died: np.ndarray, operation: int) -> int:
    """A text that is live when so many operations are done."""
    arrived = np.searchsorted(born, operation)  # texts are numbered as they arrive
    while True:
        text = int(rng.integers(arrived))
        if died[text] >= operation:
            return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("documents", type=int)
    options = parser.parse_args()
    make(options.folder, options.documents)


if __name__ == "__main__":
    main()
