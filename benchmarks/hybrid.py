"""nDCG@10 of hybrid search over whole collections: the weight of BM25 chosen on dev splits, reported on test splits.

    python benchmarks/hybrid.py --data FOLDER --work FOLDER --write

Each collection is indexed once with the bundled model, as ``weft index`` indexes a folder in BEIR's layout, and each
query is asked once. What both sides found is kept in ``--work``; every weight is then tried on that, through the
function that a search blends with. The weight is the one with the best mean over the dev splits among those that are
nowhere more than `BAR` below the better of the two sides.

Exact strings are asked for as well: `STRINGS` rare identifiers of each collection's own texts, each alone and inside
an English question; counted is how often a document that holds it comes first.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft import TextIndex
from weft.evaluation.measures import evaluate
from weft.evaluation.runs import Qrels, Run
from weft.search.hybrid import BLEND_WEIGHTS, blend, fuse
from weft.search.lexical import exact_strings, most_score
from weft.search.searcher import DEPTH, Answer
from weft.sources.beir import DEMO, Collection
from weft.text_index import is_index
from weft.types import Document, Ranking

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section

CHOSEN_ON = ("nfcorpus", "debatewise", "cosqa", "squad-dev", "wikiqa", "perspectrum")
"""Collections with a dev split, on which the weight is chosen; their test splits are reported."""
REPORTED = ("scifact",)
"""Collections without one, which are reported alone."""
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
BAR = 0.01
STRINGS = 50
_AT_ONCE = 64


@dataclass(frozen=True)
class Sides:
    """What both sides of a search found for one query."""

    vectors: Ranking
    words: Ranking
    others: Mapping[str, float]
    exact: frozenset[str]
    most: float
    """What BM25 could have given."""

    @classmethod
    def of(cls, answer: Answer, most: float) -> Sides:
        assert answer.lexical is not None
        first, *more = answer.semantic
        others = {result.id: result.score for ranking in more for result in ranking}
        exact = frozenset(name for name, parts in answer.parts.items() if parts.exact)
        return cls(first, answer.lexical, others, exact, most)

    def blended(self, weight: float) -> Ranking:
        of_vectors, _ = BLEND_WEIGHTS
        weights = (of_vectors, weight)
        return blend(self.vectors, self.words, self.others, self.exact, weights=weights, most=self.most)[0]

    def to_json(self) -> dict[str, object]:
        sides = {name: [ranking.ids, ranking.scores.tolist()] for name, ranking in self._rankings()}
        return {**sides, "others": dict(self.others), "exact": sorted(self.exact), "most": self.most}

    def _rankings(self) -> Iterable[tuple[str, Ranking]]:
        return (("vectors", self.vectors), ("words", self.words))

    @classmethod
    def from_json(cls, row: Mapping[str, object]) -> Sides:
        first, second = (Ranking(*row[name]) for name in ("vectors", "words"))  # type: ignore[misc]
        return cls(first, second, row["others"], frozenset(row["exact"]), row["most"])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Split:
    """One split of a collection, asked."""

    name: str
    documents: int
    qrels: Qrels
    found: dict[str, Sides]

    def ndcg(self, rankings: Mapping[str, Ranking]) -> float:
        run: Run = {name: dict(map(tuple, ranking)) for name, ranking in rankings.items()}
        return evaluate(run, self.qrels, ["nDCG@10"])["nDCG@10"]

    def vectors(self) -> float:
        return self.ndcg({name: sides.vectors[:10] for name, sides in self.found.items()})

    def words(self) -> float:
        return self.ndcg({name: sides.words[:10] for name, sides in self.found.items()})

    def blended(self, weight: float) -> float:
        return self.ndcg({name: sides.blended(weight) for name, sides in self.found.items()})

    def rrf(self) -> float:
        return self.ndcg({name: fuse([sides.vectors, sides.words]) for name, sides in self.found.items()})


def ask(folder: Path, split: str, work: Path) -> Split:
    """Index a collection and ask the queries of one split, unless that was done before."""
    collection = Collection.read(folder, split)
    qrels = collection.relevant()
    kept = work / f"{collection.name}-{split}.jsonl"
    if not kept.exists():
        queries = {name: collection.queries[name] for name in qrels}
        with indexed(collection, work) as texts:
            rows = search(texts, queries)
        part = kept.with_suffix(".part")
        part.write_text("\n".join(json.dumps({"query": name, **rows[name].to_json()}) for name in rows))
        part.rename(kept)
    rows = map(json.loads, kept.read_text().splitlines())
    found = {row["query"]: Sides.from_json(row) for row in rows}
    return Split(f"{collection.name}, {split}", len(collection.documents), qrels, found)


def indexed(collection: Collection, work: Path) -> TextIndex:
    place = work / f"{collection.name}.weft"
    made = is_index(place)
    texts = TextIndex.open(place, create=True)
    if not made or len(texts) < len(collection.documents):
        given = (Document(one.id, one.full_text) for one in collection.documents if one.full_text)
        texts.add(given, split=False)
    return texts


def search(texts: TextIndex, queries: Mapping[str, str]) -> dict[str, Sides]:
    names, found = list(queries), {}
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        answers = texts.answers([queries[name] for name in part], DEPTH, hybrid=True, hits=False)
        for name, answer in zip(part, answers, strict=True):
            found[name] = Sides.of(answer, most_score(texts.index, queries[name]))
    return found


def exact_found(folder: Path, work: Path, weight: float) -> tuple[list[int], int]:
    """Return how often a document that holds a rare string is first: vectors, BM25, blend; and how many were asked."""
    collection = Collection.read(folder, "test")
    seen = Counter(name for one in collection.documents for name in exact_strings(one.full_text))
    rare = sorted(string for string, times in seen.items() if times == 1 and exact_strings(string) == [string])
    chosen = random.Random(7).sample(rare, min(STRINGS, len(rare)))
    holders = {string: {one.id for one in collection.documents if string in one.full_text} for string in chosen}
    ways = ("{}", "what is said about {}?")
    asked = {f"{at}": (string, ways[at % 2].format(string)) for at, string in enumerate(np.repeat(chosen, 2).tolist())}
    right: Counter[int] = Counter()
    with indexed(collection, work) as texts:
        for name, sides in search(texts, {name: query for name, (_, query) in asked.items()}).items():
            for way, ranking in enumerate((sides.vectors, sides.words, sides.blended(weight))):
                right[way] += bool(len(ranking)) and ranking.ids[0] in holders[asked[name][0]]
    return [right[way] for way in range(3)], len(asked)


def choose(splits: list[Split]) -> tuple[float, dict[float, list[float]]]:
    """Return the best weight on these splits, and nDCG@10 of every weight on each."""
    tried = {weight: [split.blended(weight) for split in splits] for weight in WEIGHTS}
    better = np.array([max(split.vectors(), split.words()) for split in splits])
    allowed = [weight for weight in WEIGHTS if np.all(np.array(tried[weight]) >= better - BAR)]
    return max(allowed or WEIGHTS, key=lambda weight: float(np.mean(tried[weight]))), tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of collections in BEIR's layout")
    parser.add_argument("--work", type=Path, required=True, help="where indexes and what was found are kept")
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    dev = [ask(options.data / name, "dev", options.work) for name in CHOSEN_ON]
    weight, tried = choose(dev)
    test = [ask(options.data / name, "test", options.work) for name in (*CHOSEN_ON, *REPORTED)]
    test.append(ask(DEMO, "test", options.work))
    lines = [
        f"Weight of BM25 beside 1 of token vectors, chosen on dev splits: **{weight}** (in the code "
        f"{BLEND_WEIGHTS[1]}).",
        "",
        "| split | documents | queries | vectors | BM25 (FTS5) | blend | against the better | rrf |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for split in (*dev, *test):
        vectors, words, blended = split.vectors(), split.words(), split.blended(weight)
        cells = [vectors, words, blended, blended - max(vectors, words), split.rrf()]
        shown = " | ".join(f"{cell:+.3f}" if at == 3 else f"{cell:.3f}" for at, cell in enumerate(cells))
        lines.append(f"| {split.name} | {split.documents:,} | {len(split.found):,} | {shown} |")
    names = [split.name.partition(",")[0] for split in dev]
    lines += ["", "Weights tried on the dev splits:", "", "| weight | " + " | ".join(names) + " | mean |"]
    lines.append("| --- " + "| ---: " * (len(names) + 1) + "|")
    for one, values in tried.items():
        lines.append(f"| {one} | " + " | ".join(f"{value:.3f}" for value in values) + f" | {np.mean(values):.4f} |")
    lines += ["", "Rare strings asked for, alone and in a question: how often a document that holds one is first.", ""]
    lines += ["| collection | asked | vectors | BM25 | blend |", "| --- | ---: | ---: | ---: | ---: |"]
    for folder in [*(options.data / name for name in CHOSEN_ON), DEMO]:
        right, asked = exact_found(folder, options.work, weight)
        lines.append(f"| {folder.name} | {asked} | " + " | ".join(map(str, right)) + " |")
    print("\n".join(lines))
    if options.write:
        head = ["`python benchmarks/hybrid.py --data FOLDER --work FOLDER --write`; whole collections, weft-small.", ""]
        write_section("hybrid", "Hybrid search: nDCG@10", head + lines)


if __name__ == "__main__":
    main()
