"""nDCG@10 of models over the collections of a folder, in one table.

    python benchmarks/quality.py --data FOLDER --work FOLDER --collections scifact wikiqa --single "MiniLM=…"
        --base "gte-small=…" --heads "weft-small=…" --late "weft-small int8=…" --write

Rows: BM25; single-vector models (mean pooling); untrained late interaction, whole and PCA-projected; models under
ColBERT's sum-of-max and XTR's scoring from retrieved tokens; with ``--pruning`` the same with the least salient tokens
left out. ``--heads`` are models whose encoder is the frozen `--base`: only a projection and salience heads of their own
were trained, so the base's hidden states are computed once for all of them.

Encoding on two cores takes hours, so large collections are cut to a pool, the same for every row
(`weft.evaluation.pools`). Such rows compare systems with each other, never with published figures. ``--whole scifact``
keeps a collection whole. Encodings and results are kept in ``--work``: an interrupted run goes on where it was. What
was measured with another model, other lengths or another k′ is measured anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from weft import Encoder, TokenVectors
from weft.alignment import XTR, Gate
from weft.alignment.xtr import K_PRIME_SHARE, LEAST_K_PRIME
from weft.evaluation.baselines import single_scores
from weft.evaluation.measures import evaluate
from weft.evaluation.pools import Encoded, Pool, encode, make_pool
from weft.evaluation.runs import Run
from weft.evaluation.scoring import score_all, to_run
from weft.storage.pruning import prune

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section

# -- scores --------------------------------------------------------------------------------------------


def ndcg(pool: Pool, run: Run) -> float:
    return evaluate(run, pool.qrels, ["nDCG@10"])["nDCG@10"]


def late_scores(
    queries: TokenVectors, documents: TokenVectors, imputations: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Return sum-of-max scores under ``"colbert"``, and XTR's (eq. 4) under each imputation, (queries, documents)."""
    encoded = Encoded(queries, documents, salience_weighs=False)
    found = {"colbert": score_all(encoded, "sum-of-max")}
    return found | {name: score_all(encoded, XTR(impute=name)) for name in imputations}


# -- encodings, kept on disk ---------------------------------------------------------------------------


class Encodings:
    """The token vectors of one model, computed once for each pool."""

    def __init__(self, name: str, folder: str, options: argparse.Namespace) -> None:
        self.folder, self.length, self.query_length = folder, options.length, options.query_length
        mark = f"{identity(folder)}-{self.length}-{self.query_length}"
        self.work = options.work / "encodings" / f"{name.replace('/', '-').replace(' ', '-')}-{mark}"
        self._encoder: Encoder | None = None

    def load(self) -> Encoder:
        if self._encoder is None:
            self._encoder = Encoder.load(self.folder, document_length=self.length)
        return self._encoder

    def of(self, pool: Pool) -> tuple[TokenVectors, TokenVectors]:
        encoded = encode(pool, self.load, self.work)
        return encoded.queries, encoded.documents


class Hidden(Encodings):
    """The hidden states of a base encoder: from them its one vector, its token vectors, and any head trained on it."""

    def load(self) -> Encoder:
        from sentence_transformers import MultiVectorEncoder

        from weft.training.model import load_transformer, mask_module
        from weft.training.recipes import ModelSettings

        hidden = self.work / "hidden"
        if not (hidden / "modules.json").exists():
            settings = ModelSettings(base=self.folder, dropout=0.0, query_length=self.query_length)
            modules = [load_transformer(settings), mask_module(settings)]
            MultiVectorEncoder(modules=modules, prompts={"query": "", "document": ""}).save_pretrained(str(hidden))
        self.folder = str(hidden)
        return super().load()


class Heads:
    """A projection and, perhaps, salience heads trained on a frozen base."""

    def __init__(self, folder: str, base: str) -> None:
        from weft.encoders.importers import import_checkpoint
        from weft.training.run import base_identity

        self.projection: Any = None
        self.heads: dict[str, tuple[np.ndarray, float, Gate]] = {}
        model, theirs = (import_checkpoint(Path(path), path)[0] for path in (folder, base))
        if base_identity(model[0].auto_model) != base_identity(theirs[0].auto_model):
            raise SystemExit(f"the encoder of {folder} is not the base's: give it with --late")
        for module in model:
            if type(module).__name__ in ("Dense", "WholeTextProjection"):
                self.projection = module
            elif type(module).__name__ == "Salience":
                for task in ("query", "document"):
                    head = getattr(module, task)
                    self.heads[task] = (head.weight.detach().numpy()[0], float(head.bias.detach()), module.gate(task))

    def of(self, hidden: TokenVectors, task: str) -> TokenVectors:
        x = hidden.values.astype(np.float32)
        salience = None
        if task in self.heads:
            w, b, _ = self.heads[task]
            salience = np.maximum(x @ w + b, 0)  # before the gate: here saliences only rank tokens
        vectors = [self.projected(x[begin:end]) for begin, end in pairwise(hidden.offsets)]
        return TokenVectors(unit(np.concatenate(vectors)), hidden.offsets, salience=salience)

    def projected(self, states: np.ndarray) -> np.ndarray:
        """Run the projection on the states of one text, (tokens, hidden)."""
        import torch

        features = {"token_embeddings": torch.from_numpy(states)[None], "attention_mask": torch.ones(1, len(states))}
        with torch.inference_mode():
            return self.projection(features)["token_embeddings"][0].numpy()


def identity(folder: str) -> str:
    """Name the files of a model: a hash of their names, sizes and times."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    if not files:
        raise SystemExit(f"{folder} is no folder of a model")
    marks = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(marks).encode()).hexdigest()[:12]


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), 1e-12)


def pooled(hidden: TokenVectors) -> np.ndarray:
    """Return the mean of each text's hidden states, normalised: the model as a single-vector one, (texts, hidden)."""
    return unit(means(hidden))


def means(hidden: TokenVectors) -> np.ndarray:
    return np.stack([hidden[i].astype(np.float32).mean(axis=0) for i in range(len(hidden))])


def projected(texts: TokenVectors, W: np.ndarray) -> TokenVectors:
    return TokenVectors(unit(texts.values.astype(np.float32) @ W.T), texts.offsets)


# -- the run -------------------------------------------------------------------------------------------


class Results:
    """One JSON line for each (collection, row, what it was measured with), so that nothing is measured twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[str, str], float] = {}
        """Of this run, in its order."""
        self._kept: dict[tuple[str, str, str], float] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._kept[entry["pool"], entry["row"], entry.get("of", "")] = entry["ndcg"]

    def known(self, pool: str, row: str, of: str) -> bool:
        """Whether a row is there; if so, it is one of this run's."""
        value = self._kept.get((pool, row, of))
        if value is not None:
            self.rows[pool, row] = value
        return value is not None

    def put(self, pool: str, row: str, of: str, value: float) -> None:
        self.rows[pool, row] = self._kept[pool, row, of] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"pool": pool, "row": row, "of": of, "ndcg": value}) + "\n")
        print(f"{pool:28} {row:44} {value:.4f}", flush=True)

    def table(self) -> list[str]:
        pools = list(dict.fromkeys(pool for pool, _ in self.rows))
        lines = ["| | " + " | ".join(pools) + " | average |", "| --- " * (len(pools) + 2) + "|"]
        for row in dict.fromkeys(row for _, row in self.rows):
            values = [self.rows.get((pool, row)) for pool in pools]
            cells = ["–" if v is None else f"{v:.3f}" for v in values]
            known = [v for v in values if v is not None]
            mean = f"**{np.mean(known):.3f}**" if len(known) == len(pools) else "–"
            lines.append(f"| {row} | " + " | ".join(cells) + f" | {mean} |")
        return lines


class Measuring:
    """All rows of one pool that are not known yet."""

    def __init__(self, pool: Pool, options: argparse.Namespace, results: Results) -> None:
        self.pool, self.options, self.results = pool, options, results
        self.key = f"{pool.name} ({len(pool.documents)})"
        self.of = pool.digest
        """What the rows at hand are measured with."""

    def wanted(self, *rows: str) -> bool:
        known = [self.results.known(self.key, row, self.of) for row in rows]  # all of them: known ones enter the table
        return not all(known)

    def put(self, row: str, scores: np.ndarray) -> None:
        if self.wanted(row):
            run = to_run(self.pool.queries, list(self.pool.documents), scores)
            self.results.put(self.key, row, self.of, ndcg(self.pool, run))

    def begin(self, *folders: str) -> None:
        lengths = f"{self.options.query_length} {self.options.length}"
        self.of = " ".join([self.pool.digest, *map(identity, folders), lengths, f"{K_PRIME_SHARE} {LEAST_K_PRIME}"])

    def run(self) -> None:
        options = self.options
        if self.wanted("BM25"):
            self.results.put(self.key, "BM25", self.of, ndcg(self.pool, self.pool.bm25))
        for name, folder in options.single:
            self.of = f"{self.pool.digest} {identity(folder)} {options.length}"
            if self.wanted(f"{name}, one vector"):
                self.put(f"{name}, one vector", single_scores(folder, self.pool, options.length))
        for name, folder in options.base:
            hidden = Hidden(name, folder, options)
            self.begin(folder)
            self.base(name, hidden)
            for own, heads in options.heads:
                self.begin(folder, heads)
                self.model(own, lambda heads=heads, hidden=hidden: with_heads(heads, hidden, self.pool))
        for name, folder in options.late:
            encodings = Encodings(name, folder, options)
            self.begin(folder)
            self.model(name, lambda encodings=encodings: encodings.of(self.pool))

    def base(self, name: str, hidden: Hidden) -> None:
        one, reduced = f"{name}, one vector", f"{name} PCA-128"
        if self.wanted(one, *self.late_rows(name).values(), *self.late_rows(reduced).values()):
            queries, documents = hidden.of(self.pool)
            self.put(one, pooled(queries) @ pooled(documents).T)
            whole = [TokenVectors(unit(side.values.astype(np.float32)), side.offsets) for side in (queries, documents)]
            self.late(name, *whole)
            W = np.linalg.eigh(whole[1].values.T @ whole[1].values)[1][:, :-129:-1].T
            self.late(reduced, projected(queries, W), projected(documents, W))

    def late_rows(self, name: str) -> dict[str, str]:
        """Return the names of a model's rows, by the key of their scores in `late_scores`."""
        return {"colbert": f"{name}, sum-of-max"} | {i: f"{name}, XTR, impute {i}" for i in self.options.imputations}

    def late(self, name: str, queries: TokenVectors, documents: TokenVectors) -> np.ndarray:
        """Put the rows of late interaction; return the scores of sum-of-max."""
        scores = late_scores(queries, documents, tuple(self.options.imputations))
        for key, row in self.late_rows(name).items():
            self.put(row, scores[key])
        return scores["colbert"]

    def model(self, name: str, vectors: Callable[[], tuple[TokenVectors, TokenVectors]]) -> None:
        pruned = {beta: f"{name}, β_q 50 %, β_d {beta:.0%}, pruned" for beta in self.options.pruning}
        refined = {beta: row.replace("pruned", "refined") for beta, row in pruned.items()}
        if not self.wanted(*self.late_rows(name).values(), *pruned.values(), *refined.values()):
            return
        queries, documents = vectors()
        scores = self.late(name, queries, documents)
        for beta_d, row in pruned.items():
            if documents.salience is not None:
                some = late_scores(prune(queries, 0.5), prune(documents, beta_d))["colbert"]
                self.put(row, some)
                # The paper's protocol (ALIGNER §3.2): pruned tokens retrieve, all tokens re-rank the best 100.
                depth = np.sort(some, axis=1)[:, -min(100, some.shape[1])][:, None]
                self.put(refined[beta_d], np.where(some >= depth, scores, -np.inf))


def with_heads(folder: str, hidden: Hidden, pool: Pool) -> tuple[TokenVectors, TokenVectors]:
    queries, documents = hidden.of(pool)
    heads = Heads(folder, hidden.folder)
    return heads.of(queries, "query"), heads.of(documents, "document")


def named(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=FOLDER, got {text!r}")
    return name, folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR collections")
    parser.add_argument("--work", type=Path, required=True, help="folder for encodings and results")
    parser.add_argument("--collections", nargs="+", required=True, help="names, with :split if not test")
    parser.add_argument("--documents", type=int, default=1000, help="documents of a pool")
    parser.add_argument("--queries", type=int, default=100, help="queries of a pool")
    parser.add_argument("--whole", nargs="*", default=[], help="collections to keep whole")
    parser.add_argument("--single", type=named, action="append", default=[])
    parser.add_argument("--base", type=named, action="append", default=[], help="untrained encoder")
    parser.add_argument("--heads", type=named, action="append", default=[], help="trained on the frozen base")
    parser.add_argument("--late", type=named, action="append", default=[])
    parser.add_argument("--imputations", nargs="*", default=["kth"])
    parser.add_argument("--pruning", type=float, nargs="*", default=[])
    parser.add_argument("--length", type=int, default=256, help="tokens of a document at the most")
    parser.add_argument("--query-length", type=int, default=128, help="tokens of a query at the most, for bases")
    parser.add_argument("--name", default="quality", help="section of RESULTS.md")
    parser.add_argument("--title", default="Quality of models: nDCG@10", help="of that section")
    parser.add_argument("--write", action="store_true", help="write the section")
    options = parser.parse_args()
    results = Results(options.work / f"{options.name}.jsonl")
    for text in options.collections:
        name, _, split = text.partition(":")
        folder, whole = options.data / name, name in options.whole
        pool = make_pool(folder, split or "test", options.documents, options.queries, whole)
        Measuring(pool, options, results).run()
    print("\n".join(results.table()))
    if options.write:
        cut = f" --documents {options.documents} --queries {options.queries}"
        cut += f" --whole {' '.join(options.whole)}" if options.whole else ""
        models = "[--single|--base|--heads|--late NAME=FOLDER …]"
        about = [
            f"Command: `python benchmarks/quality.py --data FOLDER --work FOLDER{cut} "
            f"--collections {' '.join(options.collections)} {models} --write`; weft {version('weft-search')}.",
            f"In brackets: documents of the pool, with up to {options.queries} queries each (all, of whole "
            "collections). PCA-128 is fitted to the pool's own documents. XTR: scored from retrieved tokens alone, k′ "
            "as plain `xtr` takes it, the k′-th score imputed. Pruned: the kept tokens alone; refined: then all tokens "
            "for the best 100 (ALIGNER §3.2).",
            "",
        ]
        write_section(options.name, options.title, [*about, *results.table()])


if __name__ == "__main__":
    main()
