"""What a query costs a generative retriever: CPU time of SEAL by beams and batch, and of a trie's mask.

python benchmarks/decoding.py FOLDER --model T5      # a collection in BEIR's layout, a folder with a T5
python benchmarks/decoding.py FOLDER --model T5 --identifiers 1000000

Each query is asked three times in turn: with transformers' own modules and cache, with the loop of
`weft.generative.decoder`, and with that loop in bytes (`--precision int8`), under the same beam search, so that a busy
machine slows all of them. Without `--model` it is a T5 of random weights, of the size that recipes train from scratch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import DynamicCache, EncoderDecoderCache

from weft.generative import beam
from weft.generative.checkpoints import load_t5, load_tokenizer, new_t5, quiet_transformers, train_tokenizer
from weft.generative.decoder import Decoder
from weft.generative.model import START, GenerativeModel
from weft.generative.retriever import Retriever
from weft.generative.store import GenerativeIndex
from weft.generative.trie import Trie
from weft.sources.beir import Collection
from weft.types import Document

WAYS = ("transformers", "fp32", "int8")


class PlainDecoder:
    """The same steps by transformers' modules, each beam with keys and values of its own."""

    def __init__(self, model: GenerativeModel, ids: list[list[int]]) -> None:
        self.model = model
        encoded = model.encode(ids)
        self._hidden, self._mask = encoded.hidden, encoded.mask
        config = model.t5.decoder.config
        self._cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
        self._prefix = torch.full((len(ids), 1), START, dtype=torch.int64)

    def logits(self) -> torch.Tensor:
        """Return the logits of the next token of each row."""
        output = self.model.t5.decoder(
            inputs_embeds=self.model.embed(self._prefix[:, -1:]),
            encoder_hidden_states=self._hidden,
            encoder_attention_mask=self._mask,
            past_key_values=self._cache,
            use_cache=True,
        )
        return self.model.logits(output.last_hidden_state, self._prefix)[:, -1]

    def advance(self, rows: np.ndarray, tokens: np.ndarray) -> None:
        """Keep the chosen rows, each one token longer."""
        chosen = torch.from_numpy(rows)
        self._prefix = torch.cat([self._prefix[chosen], torch.from_numpy(tokens.astype(np.int64))[:, None]], 1)
        if len(rows) == len(self._mask) and np.array_equal(rows, np.arange(len(rows))):
            return
        self._hidden, self._mask = self._hidden[chosen], self._mask[chosen]
        self._cache.reorder_cache(chosen)


def queries(folder: Path, base: str, beams: list[int], batches: list[int], count: int) -> None:
    """Print CPU milliseconds a query, on one thread, of both decoders in turn."""
    quiet_transformers()
    torch.set_num_threads(1)
    collection = Collection.read(folder)
    documents = [Document(d.id, d.full_text, {"title": d.title}) for d in collection.documents]
    if base:
        t5, tokenizer = load_t5(base), load_tokenizer(base)
    else:
        tokenizer = train_tokenizer([document.text for document in documents])
        t5 = new_t5(len(tokenizer), "tiny")
    models = {way: GenerativeModel(t5, tokenizer, settings={"method": "seal", "span": 10}).eval() for way in WAYS}
    models["int8"].decodes_in_bytes = True
    asked = list(collection.queries.values())[:count]
    with tempfile.TemporaryDirectory() as work:
        index = GenerativeIndex.create(Path(work) / "index", documents, models["fp32"])
        retrievers = {way: Retriever(index, model) for way, model in models.items()}
        with index:
            for retriever in retrievers.values():
                retriever.search(asked[:1])  # lays the weights out
            for width in beams:
                for batch in batches:
                    taken: dict[str, list[float]] = {way: [] for way in WAYS}
                    found: dict[str, list] = {way: [] for way in WAYS}
                    for start in range(0, len(asked), batch):
                        part = asked[start : start + batch]
                        for way, times in taken.items():
                            beam.Decoder = PlainDecoder if way == "transformers" else Decoder
                            began = time.process_time()
                            found[way] += retrievers[way].search(part, beams=width, batch_size=batch)
                            times.append((time.process_time() - began) / len(part))
                    plain = statistics.median(taken["transformers"])
                    for way, times in taken.items():
                        ours = statistics.median(times)
                        pairs = list(zip(found["transformers"], found[way], strict=True))
                        first = statistics.mean(a.ids[0] == b.ids[0] for a, b in pairs)
                        ten = statistics.mean(len(set(a.ids) & set(b.ids)) / len(a.ids) for a, b in pairs)
                        print(
                            f"{width} beams, batch {batch}, {way}: {1000 * ours:.0f} ms of CPU a query, "
                            f"{ours / plain:.2f} of transformers; the same first document for {first:.0%}, "
                            f"{ten:.0%} of the ten",
                            flush=True,
                        )


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
    parser.add_argument("--model", default="", help="a folder with a T5; without it a tiny one from scratch")
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
