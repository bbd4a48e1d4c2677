"""Named suites: the papers' lists of collections with the measures that they report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.errors import DataError, invalid
from weft.evaluation.datasets import Dataset, folders, hint


@dataclass(frozen=True)
class Suite:
    """Collections that are measured together."""

    name: str
    about: str
    measures: tuple[str, ...]
    """The first one is the suite's own: macro averages are of it."""
    datasets: tuple[Dataset, ...] = ()
    """None: whatever is in the folder of collections."""

    def found(self, data: Path | None, only: tuple[str, ...] = ()) -> list[Dataset]:
        """Return its collections, or those with the names in `only`."""
        listed = list(self.datasets)
        if not listed:
            if data is None:
                raise DataError(f"the suite {self.name!r} is a folder of collections in BEIR's layout: {hint()}")
            listed = folders(data)
            if not listed:
                raise DataError(f"{str(data)!r} has no collections: folders with corpus.jsonl, queries.jsonl, qrels/")
        if not only:
            return listed
        names = {name for d in listed for name in (d.name, d.folder, d.name.lower())}
        unknown = [name for name in only if name not in names]
        if unknown:
            known = ", ".join(dict.fromkeys(d.name for d in listed))
            raise DataError(f"{unknown[0]!r} is not of the suite {self.name}: it has {known}")
        wanted = set(only)
        return [d for d in listed if wanted & {d.name, d.folder, d.name.lower()}]


def suite(name: str) -> Suite:
    """Return a suite by name.

    Examples
    --------
    >>> suite("beir13").measures[0], len(suite("beir13").datasets), len(suite("miracl").datasets)
    ('nDCG@10', 13, 18)
    """
    if name not in SUITES:
        raise invalid("suite", "weft evaluate", f"one of {', '.join(SUITES)}", name)
    return SUITES[name]


def _beir(name: str, folder: str, split: str = "", *, drop_own: bool = False) -> Dataset:
    ir_id = f"beir/{folder}{'/' + split if split else ''}"
    return Dataset(name, folder.partition("/")[0], split if split == "test" else "test", ir_id, drop_own)


# ALIGNER table 2 and XTR table 2: the 13 tasks, in ALIGNER's order.
_BEIR13 = (
    _beir("ArguAna", "arguana", drop_own=True),
    _beir("Touché-2020", "webis-touche2020", "v2"),
    _beir("FEVER", "fever", "test"),
    _beir("Climate-FEVER", "climate-fever"),
    _beir("SciFact", "scifact", "test"),
    _beir("TREC-COVID", "trec-covid"),
    _beir("NFCorpus", "nfcorpus", "test"),
    _beir("NQ", "nq"),
    _beir("HotpotQA", "hotpotqa", "test"),
    _beir("FiQA", "fiqa", "test"),
    _beir("SCIDOCS", "scidocs"),
    _beir("DBPedia", "dbpedia-entity", "test"),
    _beir("Quora", "quora", "test", drop_own=True),
)
_LOTTE = tuple(
    Dataset(f"{topic.capitalize()} {kind}", f"lotte-{topic}-{kind}", "test", f"lotte/{topic}/test/{kind}")
    for kind in ("search", "forum")
    for topic in ("writing", "recreation", "science", "technology", "lifestyle", "pooled")
)
_MIRACL = tuple(
    Dataset(language, f"miracl-{language}", "dev", f"miracl/{language}/dev")
    for language in (
        "ar",
        "bn",
        "en",
        "es",
        "fa",
        "fi",
        "fr",
        "hi",
        "id",
        "ja",
        "ko",
        "ru",
        "sw",
        "te",
        "th",
        "zh",
        "de",
        "yo",
    )
)

SUITES = {
    made.name: made
    for made in (
        Suite("beir13", "The 13 BEIR tasks of ALIGNER and XTR, zero-shot.", ("nDCG@10", "Recall@100"), _BEIR13),
        Suite(
            "msmarco",
            "MS MARCO passages: dev (small), and the judged queries of TREC 2019 and 2020.",
            ("MRR@10", "nDCG@10", "Recall@100", "Recall@1000"),
            (
                Dataset("MS MARCO dev", "msmarco", "dev", "msmarco-passage/dev/small"),
                Dataset("TREC DL 19", "msmarco-dl19", "test", "msmarco-passage/trec-dl-2019/judged"),
                Dataset("TREC DL 20", "msmarco-dl20", "test", "msmarco-passage/trec-dl-2020/judged"),
            ),
        ),
        Suite("lotte", "LoTTE test, search and forum queries, as XTR table 2 has them.", ("Success@5",), _LOTTE),
        Suite("miracl", "18 languages of MIRACL dev, as XTR table 4 has them.", ("nDCG@10", "Recall@100"), _MIRACL),
        Suite(
            "open-qa",
            "Passages for open-domain questions, as XTR table 3 has them: accuracy by the answers' words.",
            ("top-20", "top-100"),
            (
                # DPR's test sets. ir_datasets has its dev sets alone, which are other questions.
                Dataset("EntityQuestions", "entity-questions"),
                Dataset("NQ", "dpr-nq", n_queries=3610),
                Dataset("TriviaQA", "dpr-trivia-qa", n_queries=11313),
                Dataset("SQuAD", "dpr-squad", n_queries=10570),
            ),
        ),
        Suite(
            "nq320k",
            "Natural Questions over 109,739 Wikipedia pages, as the generative papers have it.",
            ("Recall@1", "Recall@10", "MRR@10"),
            (Dataset("NQ320k", "nq320k"),),
        ),
        Suite(
            "offline",
            "Every collection of a folder, its splits for testing.",
            ("nDCG@10", "MRR@10", "Recall@100", "Success@5"),
        ),
    )
}
"""By name."""
