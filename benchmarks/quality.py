"""nDCG@10 of models over the collections of a folder, in one table.

    python benchmarks/quality.py --data FOLDER --work FOLDER --late "weft-small=…" --single "MiniLM=…" --write

Rows: BM25; single-vector models (mean pooling); untrained late interaction, whole and PCA-projected; models under
ColBERT's sum-of-max and XTR's scoring from retrieved tokens; with ``--pruning`` the same with the least salient tokens
left out.

Encoding on two cores takes hours, so large collections are cut to a pool, the same for every row: the documents judged
relevant for a sample of the queries (the ten best of each), BM25's best for each of them (the hard ones), and a random
rest. Such rows compare systems with each other, never with published figures. ``--whole scifact`` keeps a collection
whole. Encodings and results are kept in ``--work``: an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft import Encoder, TokenVectors
from weft.collections.beir import Collection
from weft.index.pruning import prune
from weft.training.mining import mine_bm25

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section

K_PRIME = 0.02
"""XTR's k′ as a share of all document tokens, at least 1,000."""

MOST_RELEVANT = 10
"""Relevant documents of a query that a pool keeps, the best judged first (some TREC queries have hundreds)."""


@dataclass(frozen=True)
class Pool:
    """A collection as it is measured: ids and texts of documents and queries, and the judgements."""

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    whole: bool
    bm25: list[list[str]]


def make_pool(folder: Path, split: str, documents: int, queries: int, whole: bool, seed: int = 5) -> Pool:
    collection = Collection.read(folder, split)
    texts = {document.id: document.full_text for document in collection.documents}
    relevant = collection.relevant()
    chosen = list(relevant)
    if not whole and len(chosen) > queries:
        chosen = sorted(random.Random(seed).sample(chosen, queries))
    asked = [collection.queries[q] for q in chosen]
    found = mine_bm25(asked, texts, 100)
    keep: dict[str, None] = {}
    if whole or len(texts) <= documents:
        keep = dict.fromkeys(texts)
    else:
        for query in chosen:
            best = sorted(relevant[query], key=lambda d: -collection.qrels[query][d])
            keep.update(dict.fromkeys(best[:MOST_RELEVANT]))
        for rank in range(20):  # the hardest first, as far as there is room
            for ids in found:
                if len(keep) < documents and rank < len(ids):
                    keep[ids[rank]] = None
        rest = [d for d in texts if d not in keep]
        random.Random(seed).shuffle(rest)
        keep.update(dict.fromkeys(rest[: max(0, documents - len(keep))]))
    kept = {d: texts[d] for d in keep}
    qrels = {q: {d: g for d, g in collection.qrels[q].items() if d in kept} for q in chosen}
    ranked = [
        [d for d in ids if d in kept] for ids in (found if len(kept) == len(texts) else mine_bm25(asked, kept, 100))
    ]
    name = folder.name if split == "test" else f"{folder.name}:{split}"
    return Pool(name, kept, {q: collection.queries[q] for q in chosen}, qrels, len(kept) == len(texts), ranked)


# -- scores --------------------------------------------------------------------------------------------


def ndcg(pool: Pool, run: dict[str, dict[str, float]]) -> float:
    import ir_measures
    from ir_measures import nDCG

    return float(ir_measures.calc_aggregate([nDCG @ 10], pool.qrels, run)[nDCG @ 10])


def ranked(pool: Pool, scores: np.ndarray, depth: int = 100) -> dict[str, dict[str, float]]:
    """From scores (queries, documents) to a run."""
    ids = list(pool.documents)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    return {q: {ids[j]: float(row[j]) for j in top} for q, row, top in zip(pool.queries, scores, best, strict=True)}


def late_scores(
    queries: TokenVectors, documents: TokenVectors, imputations: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Return sum-of-max scores under ``"colbert"``, and XTR's (eq. 4) under each imputation, (queries, documents)."""
    D = np.ascontiguousarray(documents.values.T.astype(np.float32))  # (dim, T)
    starts = documents.offsets[:-1]
    some = documents.lengths > 0
    k_prime = max(1000, round(K_PRIME * D.shape[1]))
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("colbert", *imputations)}
    for i in range(len(queries)):
        S = queries[i].astype(np.float32) @ D  # (n, T)
        best = np.full((len(S), len(documents)), -np.inf, np.float32)
        best[:, some] = np.maximum.reduceat(S, starts[some], axis=1)
        found["colbert"].append(np.where(some, best, 0).sum(axis=0))
        if imputations:
            last = np.partition(S, -k_prime, axis=1)[:, -k_prime] if k_prime < S.shape[1] else S.min(axis=1)
            retrieved = best >= last[:, None]
            for name in imputations:
                if name == "none":
                    count = retrieved.sum(axis=0)
                    found[name].append(np.where(retrieved, best, 0).sum(axis=0) / np.maximum(count, 1))
                else:
                    m = last[:, None] if name == "kth" else np.float32(name)
                    found[name].append(np.where(retrieved, best, m).mean(axis=0))
    return {name: np.stack(rows) for name, rows in found.items()}


# -- encodings, kept on disk ---------------------------------------------------------------------------


class Encodings:
    """The token vectors of one model, computed once for each pool."""

    def __init__(self, name: str, folder: str, work: Path, length: int) -> None:
        self.name, self.folder, self.length = name, folder, length
        self.work = work / "encodings" / name.replace("/", "-").replace(" ", "-")
        self._encoder: Encoder | None = None

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            self._encoder = Encoder.load(self.folder, document_length=self.length)
        return self._encoder

    def of(self, pool: Pool) -> tuple[TokenVectors, TokenVectors]:
        path = self.work / f"{pool.name.replace(':', '-')}-{len(pool.documents)}.npz"
        if not path.exists():
            queries = self.encoder.encode_query(pool.queries.values(), truncation="ignore", dtype=np.float16)
            documents = self.encoder.encode_document(pool.documents.values(), truncation="ignore", dtype=np.float16)
            arrays = {}
            for side, texts in (("q", queries), ("d", documents)):
                arrays |= {f"{side}.values": texts.values, f"{side}.offsets": texts.offsets}
                if texts.salience is not None:
                    arrays[f"{side}.salience"] = texts.salience
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path.with_suffix(".part"), "wb") as file:
                np.savez(file, **arrays)
            path.with_suffix(".part").rename(path)
        held = np.load(path)
        return tuple(
            TokenVectors(held[f"{s}.values"], held[f"{s}.offsets"], salience=held.get(f"{s}.salience")) for s in "qd"
        )


def single_scores(folder: str, pool: Pool, length: int) -> np.ndarray:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    if (Path(folder) / "modules.json").exists():
        model = SentenceTransformer(folder, device="cpu")
    else:
        transformer = Transformer(folder)
        model = SentenceTransformer(
            modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")], device="cpu"
        )
    model.max_seq_length = length
    Q = model.encode(list(pool.queries.values()), normalize_embeddings=True, show_progress_bar=False)
    D = model.encode(list(pool.documents.values()), normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(Q) @ np.asarray(D).T


def projected(texts: TokenVectors, W: np.ndarray) -> TokenVectors:
    values = texts.values.astype(np.float32) @ W.T
    return TokenVectors(values / np.linalg.norm(values, axis=1, keepdims=True), texts.offsets)


# -- the run -------------------------------------------------------------------------------------------


class Results:
    """One JSON line for each (collection, row), so that nothing is measured twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[str, str], float] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self.rows[entry["pool"], entry["row"]] = entry["ndcg"]

    def put(self, pool: str, row: str, value: float) -> None:
        self.rows[pool, row] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"pool": pool, "row": row, "ndcg": value}) + "\n")
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


def measure(pool: Pool, options: argparse.Namespace, results: Results) -> None:
    key = f"{pool.name} ({len(pool.documents)})"

    def wanted(row: str) -> bool:
        return (key, row) not in results.rows

    if wanted("BM25"):
        run = {q: {d: 100.0 - i for i, d in enumerate(ids)} for q, ids in zip(pool.queries, pool.bm25, strict=True)}
        results.put(key, "BM25", ndcg(pool, run))
    for name, folder in options.single:
        if wanted(f"{name}, one vector"):
            results.put(
                key, f"{name}, one vector", ndcg(pool, ranked(pool, single_scores(folder, pool, options.length)))
            )
    for name, folder in options.untrained + options.late:
        encodings = Encodings(name, folder, options.work, options.length)
        rows = {"colbert": f"{name}, sum-of-max"}
        if (name, folder) in options.late:
            rows |= {i: f"{name}, XTR, impute {i}" for i in options.imputations}
        if any(wanted(row) for row in rows.values()):
            queries, documents = encodings.of(pool)
            scores = late_scores(queries, documents, tuple(i for i in rows if i != "colbert"))
            for i, row in rows.items():
                results.put(key, row, ndcg(pool, ranked(pool, scores[i])))
        if (name, folder) in options.untrained and wanted(f"{name} PCA-128, sum-of-max"):
            queries, documents = encodings.of(pool)
            moment = documents.values.astype(np.float32)
            W = np.linalg.eigh(moment.T @ moment)[1][:, :-129:-1].T
            scores = late_scores(projected(queries, W), projected(documents, W))["colbert"]
            results.put(key, f"{name} PCA-128, sum-of-max", ndcg(pool, ranked(pool, scores)))
        for beta_d in options.pruning if (name, folder) in options.late else ():
            row = f"{name}, β_q 50 %, β_d {beta_d:.0%}, pruned"
            if wanted(row):
                queries, documents = encodings.of(pool)
                if documents.salience is None:
                    continue
                scores = late_scores(prune(queries, 0.5), prune(documents, beta_d))["colbert"]
                results.put(key, row, ndcg(pool, ranked(pool, scores)))
                # The paper's protocol (ALIGNER §3.2): pruned tokens retrieve, all tokens re-rank the best 100.
                whole = late_scores(queries, documents)["colbert"]
                depth = np.sort(scores, axis=1)[:, -min(100, scores.shape[1])][:, None]
                refined = np.where(scores >= depth, whole, -1e9)
                results.put(key, row.replace("pruned", "refined"), ndcg(pool, ranked(pool, refined)))


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
    parser.add_argument("--untrained", type=named, action="append", default=[])
    parser.add_argument("--late", type=named, action="append", default=[])
    parser.add_argument("--imputations", nargs="*", default=["kth"])
    parser.add_argument("--pruning", type=float, nargs="*", default=[])
    parser.add_argument("--length", type=int, default=256, help="tokens of a document at the most")
    parser.add_argument("--name", default="quality", help="section of RESULTS.md")
    parser.add_argument("--write", action="store_true", help="write the section")
    options = parser.parse_args()
    results = Results(options.work / f"{options.name}.jsonl")
    for text in options.collections:
        name, _, split = text.partition(":")
        pool = make_pool(
            options.data / name, split or "test", options.documents, options.queries, name in options.whole
        )
        measure(pool, options, results)
    print("\n".join(results.table()))
    if options.write:
        title = "Quality of models: nDCG@10"
        about = [f"`python {' '.join(sys.argv)}`" if len(" ".join(sys.argv)) < 300 else "", ""]
        write_section(options.name, title, [*about, "In brackets: documents of the pool.", "", *results.table()])


if __name__ == "__main__":
    main()
