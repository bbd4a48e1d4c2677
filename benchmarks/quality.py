"""nDCG@10 of models on whole collections, and on large pools of larger ones, on dev and on test splits.

    python benchmarks/quality.py --data FOLDER --cache FOLDER --base FOLDER [--model NAME …] [--write]

Rows: BM25; the untrained base as one vector (the mean of its states) and with all its dimensions under sum-of-max and
``xtr``; each model under both; its documents with a part of their vectors, by salience alone (β_d) and pooled
(``keep``). Then the differences of the model from the base and from BM25, with bootstrap intervals over queries.

Everything is scored exactly, without an index. ``--base`` is a light folder of the untrained encoder without projection
or normalisation (``--make-base`` writes it from a checkpoint). Encodings are kept in ``--cache`` (`whole.py`), and so
is what each row reached, query by query: a new row costs only itself, and ``--minutes`` may cut a run short.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray

from weft import Encoder, TokenVectors
from weft.evaluation.measures import evaluate
from weft.evaluation.pools import Encoded
from weft.evaluation.runs import Run
from weft.evaluation.scoring import score_all, to_run
from weft.evaluation.significance import bootstrap, macro_average
from weft.storage.pooling import pool
from weft.storage.pruning import prune

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section
from whole import DEV, DOCUMENTS, QUERIES, SPLITS, TRAINED, Cut, Encodings, digest, read

NDCG = "nDCG@10"
ALIGNMENTS = ("sum-of-max", "xtr")
PARTS = (0.2, 0.1)
"""Parts of the documents' vectors that are kept."""


class Results:
    """What each row reached, query by query: JSON lines, so that nothing is measured twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[str, list[float]] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._kept[entry["key"]] = entry["values"]
        self.rows: dict[str, dict[tuple[str, str], NDArray[np.float64]]] = {}
        """By row, then by (collection, split)."""

    def put(self, cut: Cut, split: str, row: str, of: str, measured: Callable[[], Run]) -> None:
        queries = cut.splits[split]
        mark = digest([*cut.documents, *cut.documents.values(), *queries.queries, *queries.queries.values()])
        key = json.dumps([cut.name, split, mark, row, of])
        if key not in self._kept:
            values = evaluate(measured(), queries.qrels, [NDCG]).values(NDCG)
            self._kept[key] = [round(float(value), 6) for value in values]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "values": self._kept[key]}) + "\n")
            print(f"{cut.label:34} {split:6} {row:36} {np.mean(self._kept[key]):.4f}", flush=True)
        self.rows.setdefault(row, {})[cut.label, split] = np.array(self._kept[key])

    def table(self, places: list[tuple[str, str]]) -> list[str]:
        names = [label if split in (DEV, "test") else f"{label} {split}" for label, split in places]
        lines = ["| | " + " | ".join(names) + " | average |", "| --- " + "| ---: " * (len(places) + 1) + "|"]
        for row, values in self.rows.items():
            means = [values[place].mean() for place in places]
            lines.append(f"| {row} | " + " | ".join(f"{v:.3f}" for v in means) + f" | **{np.mean(means):.3f}** |")
        return lines

    def differences(self, places: list[tuple[str, str]], pairs: list[tuple[str, str]]) -> list[str]:
        """First less second, in points of nDCG@10, with 95 % bootstrap intervals."""
        lines = ["| | " + " | ".join(f"{a} − {b}" for a, b in pairs) + " |", "| --- " * (len(pairs) + 1) + "|"]
        samples = [{place: 100 * (self.rows[a][place] - self.rows[b][place]) for place in places} for a, b in pairs]
        for place in places:
            trained = ", trained on" if place[0].split()[0] in TRAINED else ""
            cells = [str(bootstrap(sample[place])) for sample in samples]
            lines.append(f"| {place[0]} {place[1]}{trained} | " + " | ".join(cells) + " |")
        groups = {
            "average": places,
            "average of those not trained on": [p for p in places if p[0].split()[0] not in TRAINED],
        }
        for name, some in groups.items():
            if some:
                cells = [str(macro_average({f"{p[0]} {p[1]}": sample[p] for p in some})) for sample in samples]
                lines.append(f"| **{name}** | " + " | ".join(f"**{cell}**" for cell in cells) + " |")
        return lines


class Vectors:
    """A model's vectors of one collection, in single precision, read when a row needs them."""

    def __init__(self, encodings: Encodings, cut: Cut, unit: bool = False) -> None:
        self.encodings, self.cut, self.unit = encodings, cut, unit

    @cached_property
    def documents(self) -> TokenVectors:
        return self._single(self.encodings.documents(self.cut))

    def queries(self, split: str) -> TokenVectors:
        return self._single(self.encodings.queries(self.cut, split))

    def _single(self, texts: TokenVectors) -> TokenVectors:
        values = texts.values.astype(np.float32)
        if self.unit:
            values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
        return TokenVectors.trusted(values, texts.offsets, texts.token_ids, texts.salience, texts.spans)


def means(states: TokenVectors) -> NDArray[np.float32]:
    """The mean of each text's states, normalised: the encoder as a one-vector model, (texts, hidden)."""
    found = np.stack([states[i].astype(np.float32).mean(axis=0) for i in range(len(states))])
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)


class Measuring:
    """The rows of one collection."""

    def __init__(self, cut: Cut, options: argparse.Namespace, results: Results) -> None:
        self.cut, self.options, self.results = cut, options, results

    def run(self) -> None:
        for split in self.cut.splits:
            self.results.put(self.cut, split, "BM25", "", lambda split=split: self.cut.bm25(split))
        self.base()
        for model in self.options.model:
            self.model(model)

    def encodings(self, model: str | Path) -> Encodings:
        return Encodings(self.options.cache, Encoder.load(model), self.options.threads)

    def put(self, row: str, of: Encodings, scores: Callable[[str], NDArray[np.floating]]) -> None:
        """Put a row for every split, from the scores (queries, documents) of each."""
        for split in self.cut.splits:
            self.results.put(self.cut, split, row, of.encoder.fingerprint, partial(self.ranked, split, scores))

    def ranked(self, split: str, scores: Callable[[str], NDArray[np.floating]]) -> Run:
        return to_run(self.cut.splits[split].queries, list(self.cut.documents), scores(split))

    def late(
        self, row: str, vectors: Vectors, alignment: str, documents: Callable[[], TokenVectors] | None = None
    ) -> None:
        def scores(split: str) -> NDArray[np.float32]:
            texts = vectors.documents if documents is None else documents()
            encoded = Encoded(vectors.queries(split), texts, salience_weighs=False)
            return score_all(encoded, alignment, threads=self.options.threads)

        self.put(f"{row}, {alignment}", vectors.encodings, scores)

    def base(self) -> None:
        encodings = self.encodings(self.options.base)
        states, encoder = Vectors(encodings, self.cut), encodings.encoder
        one = f"{encoder.name}, one vector"
        self.put(one, encodings, lambda split: means(states.queries(split)) @ means(states.documents).T)
        unit = Vectors(encodings, self.cut, unit=True)
        for alignment in ALIGNMENTS:
            self.late(f"{encoder.name}, untrained, {encoder.dim}-d", unit, alignment)

    def model(self, model: str) -> None:
        vectors = Vectors(self.encodings(model), self.cut)
        encoder = vectors.encodings.encoder
        name = f"{encoder.name} {encoder.settings.precision}"
        for alignment in ALIGNMENTS:
            self.late(name, vectors, alignment)
        for part in PARTS:
            if encoder.has_salience:
                self.late(
                    f"{name}, β_d {part}", vectors, "sum-of-max", lambda part=part: prune(vectors.documents, part)
                )
            self.late(f"{name}, keep {part}", vectors, "sum-of-max", lambda part=part: pool(vectors.documents, part))


def make_base(checkpoint: str, folder: Path) -> None:
    """Write the light form of an encoder's own states: no projection, no normalisation."""
    from tempfile import TemporaryDirectory

    from sentence_transformers import MultiVectorEncoder

    from weft.encoders.export import export
    from weft.training.model import load_transformer, mask_module
    from weft.training.recipes import ModelSettings

    settings = ModelSettings(base=checkpoint, dropout=0.0, query_length=128, document_length=256)
    with TemporaryDirectory() as made:
        model = MultiVectorEncoder(
            modules=[load_transformer(settings), mask_module(settings)], prompts={"query": "", "document": ""}
        )
        model.save_pretrained(made)
        export(made, folder, name=Path(checkpoint).name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR collections")
    parser.add_argument("--cache", type=Path, required=True, help="folder for encodings and results")
    parser.add_argument("--base", type=Path, required=True, help="light folder of the untrained encoder")
    parser.add_argument("--make-base", help="checkpoint to write --base from")
    parser.add_argument("--model", action="append", help="light folder; by default weft-small, the bundled one")
    parser.add_argument("--collections", nargs="+", default=list(SPLITS))
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="of a pool of a larger collection")
    parser.add_argument("--queries", type=int, default=QUERIES, help="of a split, at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no collection after so many")
    parser.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    options = parser.parse_args()
    options.model = options.model or ["weft-small"]
    if options.make_base:
        make_base(options.make_base, options.base)
    results = Results(options.cache / "quality.jsonl")
    end, names, options.collections = time.monotonic() + 60 * options.minutes, options.collections, []
    for name in names:
        if time.monotonic() > end:
            print(f"no time left for {name}", flush=True)
            continue
        cut = read(options.data, name, options.documents).few(options.queries)
        Measuring(cut, options, results).run()
        options.collections.append(name)
    lines = report(options, results)
    print("\n".join(lines))
    if options.write:
        write_section("quality-whole", f"Quality of models on whole collections: {NDCG}", lines)


def report(options: argparse.Namespace, results: Results) -> list[str]:
    places = list(results.rows["BM25"])
    base, model = Encoder.load(options.base), Encoder.load(options.model[0])
    name = f"{model.name} {model.settings.precision}"
    untrained = [f"{base.name}, untrained, {base.dim}-d, {alignment}" for alignment in ALIGNMENTS]
    trained = [f"{name}, {alignment}" for alignment in ALIGNMENTS]
    pairs = [*zip(trained, untrained, strict=True), (trained[0], "BM25")]
    lines = [
        "Command: `python benchmarks/quality.py --data FOLDER --cache FOLDER --base FOLDER "
        f"--documents {options.documents} --queries {options.queries} --collections {' '.join(options.collections)} "
        f"--write`; {model.name}, fingerprint `{model.fingerprint}`. Documents of up to 256 tokens, exact scores, "
        f"int8 graphs, up to {options.queries} queries a split. "
        "Numbers in brackets are documents: whole collections, or pools of larger ones (the judged documents, BM25's "
        "best and a random rest), which compare rows with each other only. Trained on: the training splits of "
        f"{', '.join(sorted(TRAINED))}. β_d: the most salient part of the tokens; keep: similar tokens pooled.",
    ]
    for title, chosen in (("Test splits", False), ("Dev splits, on which decisions are made", True)):
        some = [place for place in places if (place[1] == DEV) == chosen]
        if some:
            lines += [
                "",
                f"**{title}**",
                "",
                *results.table(some),
                "",
                "Differences in points, with 95 % intervals:",
                "",
            ]
            lines += results.differences(some, pairs)
    return lines


if __name__ == "__main__":
    main()
