"""Runs and judgements: what a system found, what is relevant, and their files.

A run maps each query to its documents with their scores, judgements map each query to its documents with their grades:
plain dictionaries, as `ir_measures` takes them.

Equal scores have one defined order, trec_eval's: scores are compared in single precision, and of equals the document
with the *greater* id comes first. `ranked` is that order, and every measure here sees it, whatever the library behind
the measure does with ties.

A mistake in a file or a run is an error if it could make a number wrong (a document twice in a ranking, two grades for
one document, a score that is not a number). If it only makes a part useless, it is a warning with a count (judgements
of documents that do not exist, queries without judgements, a system that found nothing).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from weft.errors import DataError
from weft.sources.beir import lines

Run: TypeAlias = Mapping[str, Mapping[str, float]]
"""{query: {document: score}}; more is better."""
Qrels: TypeAlias = Mapping[str, Mapping[str, int]]
"""{query: {document: grade}}; 1 and more is relevant."""

logger = logging.getLogger(__name__)


def ranked(documents: Mapping[str, float], depth: int | None = None) -> list[str]:
    """Return the documents of one query, best first, in trec_eval's order.

    Examples
    --------
    >>> ranked({"a": 1.0, "b": 2.0, "c": 1.0})
    ['b', 'c', 'a']
    """
    with np.errstate(over="ignore"):  # beyond single precision scores are infinite, as for trec_eval
        single = {name: float(np.float32(score)) for name, score in documents.items()}
    # Python compares strings by code point, which is the order of their UTF-8 bytes.
    return sorted(sorted(single, reverse=True), key=lambda name: -single[name])[:depth]


def check_run(run: Run, what: str = "the run") -> Run:
    """Return the run; refuse scores that are not finite, which have no order."""
    for query, documents in run.items():
        for document, score in documents.items():
            if not math.isfinite(score):
                raise DataError(f"{what}: document {document!r} of query {query!r} has the score {score}")
    return run


# -- files ---------------------------------------------------------------------------------------------


def read_run(path: str | Path) -> dict[str, dict[str, float]]:
    """Read a TREC run, ``query Q0 document rank score tag`` a line, gzipped or not.

    The order is that of the scores; the ranks are not looked at, as trec_eval does. A file without results is a run
    that found nothing: {}, with a warning.
    """
    path = Path(path)
    run: dict[str, dict[str, float]] = {}
    for number, line in enumerate(lines(path), 1):
        cells = line.split()
        try:
            query, _, document, _, score, _ = cells
            value = float(score)
        except ValueError:
            wanted = "'query Q0 document rank score tag'"
            raise DataError(f"{str(path)!r}, line {number}: expected {wanted}, got {line[:80]!r}") from None
        if not math.isfinite(value):
            raise DataError(f"{str(path)!r}, line {number}: the score {score} is not a finite number")
        documents = run.setdefault(query, {})
        if document in documents:
            raise DataError(f"{str(path)!r}, line {number}: document {document!r} is there twice for query {query!r}")
        documents[document] = value
    if not run:
        logger.warning("%s has no results", path)
    return run


def write_run(path: str | Path, run: Run, *, tag: str = "weft") -> None:
    """Write a TREC run that `read_run` reads back as it was, ranks in the order of `ranked`."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in run_lines(run, tag))


def run_lines(run: Run, tag: str = "weft") -> Iterator[str]:
    """Write a run as lines of a TREC run."""
    check_run(run)
    _one_word(tag)
    for query, documents in run.items():
        _one_word(query)
        for rank, document in enumerate(ranked(documents), 1):
            _one_word(document)
            yield f"{query} Q0 {document} {rank} {float(documents[document])!r} {tag}"


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements: TREC's ``query 0 document grade`` or BEIR's ``query⇥document⇥grade``, gzipped or not.

    A header line is skipped. The same judgement twice counts once, with a warning; two grades for one document are an
    error, and so is a file without judgements.
    """
    path = Path(path)
    qrels: dict[str, dict[str, int]] = {}
    repeated = 0
    for number, line in enumerate(lines(path), 1):
        cells = line.split("\t") if line.count("\t") == 2 else line.split()
        try:
            query, *_, document, grade = cells
            if len(cells) not in (3, 4) or not query or not document:
                raise ValueError
            value = int(float(grade))
        except ValueError:
            if number == 1 and len(cells) in (3, 4):
                continue  # the header
            wanted = "'query 0 document grade', or query, document and grade with tabs"
            raise DataError(f"{str(path)!r}, line {number}: expected {wanted}, got {line[:80]!r}") from None
        grades = qrels.setdefault(query, {})
        if document in grades:
            if grades[document] != value:
                raise DataError(
                    f"{str(path)!r}, line {number}: document {document!r} of query {query!r} has two grades, "
                    f"{grades[document]} and {value}"
                )
            repeated += 1
        grades[document] = value
    if not qrels:
        raise DataError(f"{str(path)!r} has no judgements")
    if repeated:
        logger.warning("%s: %d judgements are there more than once", path, repeated)
    return qrels


def write_qrels(path: str | Path, qrels: Qrels) -> None:
    """Write judgements in TREC's form."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for query, grades in qrels.items():
            for document, grade in grades.items():
                file.write(f"{_one_word(query)} 0 {_one_word(document)} {int(grade)}\n")


def known_only(
    qrels: Qrels, documents: Collection[str], queries: Collection[str] | None = None, *, what: str = "the judgements"
) -> dict[str, dict[str, int]]:
    """Leave out judgements of documents (and queries) that are not there, with a warning that counts them.

    A query without any judgement left is left out too: it would be 0 for every system.
    """
    kept: dict[str, dict[str, int]] = {}
    dropped = 0
    for query, grades in qrels.items():
        mine = grades if queries is None or query in queries else {}
        here = {document: grade for document, grade in mine.items() if document in documents}
        dropped += len(grades) - len(here)
        if here:
            kept[query] = here
    if dropped:
        logger.warning("%s: %d judgements name unknown queries or documents and are left out", what, dropped)
    return kept


def _one_word(name: str) -> str:
    if len(name.split()) != 1 or name != name.strip():
        raise DataError(f"{name!r} is empty or has spaces, which TREC's files cannot hold")
    return name
