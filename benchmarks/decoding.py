"""What a query costs a generative retriever: CPU time of SEAL by beams and batch, and of a trie's mask.

python benchmarks/decoding.py FOLDER --model T5      # a collection in BEIR's layout, a folder with a T5
python benchmarks/decoding.py FOLDER --model T5 --identifiers 1000000
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from weft.generative.checkpoints import load_t5, load_tokenizer, quiet_transformers
from weft.generative.model import GenerativeModel
from weft.generative.retriever import Retriever
from weft.generative.store import GenerativeIndex
from weft.generative.trie import Trie
from weft.sources.beir import Collection
from weft.types import Document


def queries(folder: Path, base: str, beams: list[int], batches: list[int], count: int) -> None:
    """Print CPU milliseconds a query, on one thread."""
    quiet_transformers()
    torch.set_num_threads(1)
    collection = Collection.read(folder)
    model = GenerativeModel(load_t5(base), load_tokenizer(base), settings={"method": "seal", "span": 10})
    documents = [Document(d.id, d.full_text, {"title": d.title}) for d in collection.documents]
    asked = list(collection.queries.values())[:count]
    with tempfile.TemporaryDirectory() as work:
        index = GenerativeIndex.create(Path(work) / "index", documents, model)
        with Retriever(index, model) as retriever:
            retriever.search(asked[:1])
            for width in beams:
                for batch in batches:
                    taken = []
                    for start in range(0, len(asked), batch):
                        part = asked[start : start + batch]
                        began = time.process_time()
                        retriever.search(part, beams=width, batch_size=batch)
                        taken.append((time.process_time() - began) / len(part))
                    print(f"{width} beams, batch {batch}: {1000 * statistics.median(taken):.0f} ms of CPU a query")


def mask(identifiers: int, beams: int = 15) -> None:
    """Print milliseconds a step of the beams takes in a trie of random titles."""
    rng = np.random.default_rng(0)
    likely = 1 / np.arange(1, 32_101)
    lengths = rng.integers(3, 13, identifiers)
    flat = rng.choice(len(likely), size=lengths.sum(), p=likely / likely.sum())
    began = time.perf_counter()
    trie = Trie(np.split(flat, np.cumsum(lengths)[:-1]))
    print(f"a trie of {identifiers:,} titles: {time.perf_counter() - began:.1f} s")
    taken = []
    for _ in range(200):
        state = trie.start(1)
        for depth in range(4):
            began = time.perf_counter()
            offsets, tokens = trie.continuations(state)
            between = time.perf_counter()
            if not len(tokens):
                break
            rows = np.repeat(np.arange(len(state)), np.diff(offsets))
            chosen = np.sort(rng.choice(len(tokens), min(beams, len(tokens)), replace=False))
            again = time.perf_counter()
            state = trie.advance(state, rows[chosen], tokens[chosen])
            trie.complete(state)
            if depth:
                taken.append(between - began + time.perf_counter() - again)
    print(f"a step of {beams} beams: {1000 * statistics.median(taken):.3f} ms")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--beams", type=int, nargs="+", default=[15, 300])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--queries", type=int, default=16)
    parser.add_argument("--identifiers", type=int, default=0)
    given = parser.parse_args()
    if given.identifiers:
        mask(given.identifiers)
    queries(given.folder, given.model, given.beams, given.batches, given.queries)


if __name__ == "__main__":
    main()
