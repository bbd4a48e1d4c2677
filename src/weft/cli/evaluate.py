"""``weft evaluate``: how good rankings are."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.adapt import QrelsOption, QueriesOption
from weft.cli.opening import Queries, QueryEncoder
from weft.errors import DataError, MissingExtraError
from weft.explain.printable import json_line

if TYPE_CHECKING:
    from weft.evaluation.baselines import System
    from weft.evaluation.benchmark import Results
    from weft.evaluation.datasets import Dataset, Task
    from weft.evaluation.runs import Qrels
    from weft.evaluation.tables import Table

logger = logging.getLogger(__name__)


class Format(StrEnum):
    """How results are printed."""

    md = "md"
    csv = "csv"
    html = "html"
    json = "json"


@dataclass(frozen=True)
class _Models:
    """Which systems are compared, as the command line says."""

    late: tuple[str, ...]
    alignments: tuple[str, ...]
    single: tuple[str, ...]
    bm25: bool
    with_late: bool
    work: Path | None
    length: int | None
    threads: int
    query: str = "full"


def evaluate(
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="A suite, a folder in BEIR's layout, an ir_datasets id, or an index."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="FILE",
            help="A TREC run to measure, instead of TARGET.",
        ),
    ] = None,
    qrels: QrelsOption = None,
    queries: QueriesOption = None,
    measures: Annotated[
        str | None,
        typer.Option(
            "--measures",
            help="Measures, separated by commas: nDCG@10,MRR@10,Recall@100,Success@5,top-20 …",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="[NAME=]FOLDER", help="A model; may be repeated; default weft-small."),
    ] = None,
    alignment: Annotated[
        list[str] | None,
        typer.Option("--alignment", "-a", metavar="ALIGNMENT", help="An alignment to measure; may be repeated."),
    ] = None,
    single: Annotated[
        list[str] | None,
        typer.Option("--single", metavar="[NAME=]FOLDER", help="A single-vector model to compare with."),
    ] = None,
    bm25: Annotated[bool, typer.Option("--bm25/--no-bm25", help="Include BM25.")] = True,
    late: Annotated[bool, typer.Option("--late/--no-late", help="Include the late-interaction models.")] = True,
    rerank: Annotated[bool, typer.Option("--rerank", help="Rank BM25's best 100 and the relevant ones only.")] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder of collections; by default that of WEFT_DATA.")
    ] = None,
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", metavar="NAME", help="Only this collection of a suite; may be repeated."),
    ] = None,
    split: Annotated[str, typer.Option(help="The split of a folder.")] = "test",
    documents: Annotated[int | None, typer.Option(min=10, help="Cut collections to this many documents.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Measure on this many queries.")] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Compare with this run (a file or a row), with p-values."),
    ] = None,
    per_query: Annotated[Path | None, typer.Option(metavar="FILE", help="Write each query's values, as TSV.")] = None,
    save_run: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write the runs in TREC's form.")] = None,
    work: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep encodings and indexes here.")] = None,
    length: Annotated[
        int | None, typer.Option(min=8, help="Maximum tokens of a document; by default what the model reads.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Processors to use.")] = 1,
    query_encoder: Queries = QueryEncoder.full,
    format_: Annotated[Format, typer.Option("--format", help="The output format.")] = Format.md,
) -> None:
    """Measure rankings: of a collection, a suite of them, an index, or a run file.

    Suites: beir13, msmarco, lotte, miracl, open-qa, nq320k, offline (every collection of --data).
    """
    from weft.evaluation.benchmark import Cut, measure_all
    from weft.evaluation.measures import MEASURES, parse_measure
    from weft.text_index import is_index

    named = () if measures is None else tuple(name.strip() for name in measures.split(",") if name.strip())
    for name in named:
        parse_measure(name)
    if (target is None) == (run is None):
        raise DataError("give a TARGET, or --run FILE with --qrels FILE")
    bases = tuple(compare or ())
    models = _Models(tuple(model or ()), tuple(alignment or ()), tuple(single or ()), bm25, late, work, length, threads)
    models = replace(models, query=query_encoder.value)
    if run is not None:
        results, judged = _of_run(run, qrels, named or MEASURES)
        _add(results, bases, judged)
    elif target is not None and is_index(target):
        results, judged = _of_index(Path(target), queries, qrels, named or MEASURES, models, save_run)
        _add(results, bases, judged)
    else:
        assert target is not None
        datasets, usual = _datasets(target, split, data, tuple(collection or ()))
        systems = [*_systems(models), *_read(bases, len(datasets))]
        found = None
        measured = measure_all(
            _tasks(datasets, data),
            systems,
            named or usual,
            cut=Cut(documents, sample),
            rerank=rerank,
            save=save_run,
        )
        for found in measured:
            logger.info("measured on %s", found.collections[-1])
        if found is None:
            raise DataError(f"nothing could be measured of {target!r}")
        results = found
    _print(results, bases, per_query, format_)


# -- what is measured ----------------------------------------------------------------------------------


def _of_run(run: Path, qrels: Path | None, measures: Sequence[str]) -> tuple[Results, Qrels]:
    from weft.evaluation.benchmark import Results
    from weft.evaluation.measures import evaluate as measure
    from weft.evaluation.runs import read_qrels, read_run

    if qrels is None:
        raise DataError("--qrels FILE is missing: it holds the relevance judgements")
    judged = read_qrels(qrels)
    results = Results(tuple(measures))
    results.scores[qrels.stem, run.stem] = measure(read_run(run), judged, measures)
    results.sizes[qrels.stem] = 0, len(judged)
    return results, judged


def _of_index(
    path: Path, queries: Path | None, qrels: Path | None, measures: Sequence[str], models: _Models, save: Path | None
) -> tuple[Results, Qrels]:
    from weft.evaluation.baselines import slug
    from weft.evaluation.benchmark import Results, depth_of
    from weft.evaluation.indexes import Parents, search_index
    from weft.evaluation.measures import evaluate as measure
    from weft.evaluation.runs import read_qrels, write_run
    from weft.sources.queries import read_query_file
    from weft.text_index import TextIndex

    if queries is None or qrels is None:
        raise DataError("an index needs --queries FILE and --qrels FILE")
    asked = {query.id: query.text for query in read_query_file(queries)}
    results = Results(tuple(measures))
    with TextIndex.open(path, model=models.late[0] if models.late else None, query=models.query) as opened:
        judged = Parents(opened.index).known(read_qrels(qrels))
        wanted = {name: text for name, text in asked.items() if name in judged}
        if not wanted:
            raise DataError(f"{queries} and {qrels} have no query in common")
        judged = {name: judged[name] for name in wanted}
        results.sizes[path.name] = len(opened), len(wanted)
        options = {"depth": depth_of(measures), "threads": models.threads}
        for alignment in models.alignments or (opened.index.alignment,):
            run = search_index(opened.index, opened.encoder, wanted, alignment, **options)
            results.scores[path.name, alignment] = measure(run, judged, measures)
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                write_run(save / f"{slug(alignment)}.run", run, tag=slug(alignment))
    return results, judged


def _datasets(
    target: str, split: str, data: Path | None, only: tuple[str, ...]
) -> tuple[list[Dataset], tuple[str, ...]]:
    from weft.evaluation.datasets import data_folder, find
    from weft.evaluation.measures import MEASURES
    from weft.evaluation.suites import SUITES

    folder = data_folder(data)
    if target in SUITES:
        return SUITES[target].found(folder, only), SUITES[target].measures
    if only:
        raise DataError(f"--collection is for suites; {target!r} is none of {', '.join(SUITES)}")
    return [find(target, split, folder)], MEASURES


def _tasks(datasets: list[Dataset], data: Path | None) -> Iterator[Task]:
    from weft.evaluation.datasets import data_folder

    folder = data_folder(data)
    for dataset in datasets:
        try:
            yield dataset.load(folder)
        except (DataError, MissingExtraError) as error:
            if len(datasets) == 1:
                raise
            logger.warning("%s is left out: %s", dataset.name, error)


def _systems(models: _Models) -> list[System]:
    from functools import cache, partial

    from weft.alignment import Alignment
    from weft.encoders import Encoder
    from weft.evaluation.baselines import BM25_SYSTEM, LateInteraction, single_vector

    for alignment in models.alignments:
        Alignment.parse(alignment)  # refused before hours of encoding
    systems = [BM25_SYSTEM] if models.bm25 else []
    for text in models.single:
        name, folder = _named(text)
        systems.append(single_vector(name, folder, length=models.length))
    for text in (models.late or ("",)) if models.with_late else ():
        name, folder = _named(text) if text else ("weft", "")
        load = cache(partial(Encoder.load, folder or None, document_length=models.length, query=models.query))
        name = name if models.query == "full" else f"{name} {models.query}"
        made = LateInteraction(name, load, models.work, models.threads)
        systems += [made.system(alignment) for alignment in models.alignments or (load().alignment or "sum-of-max",)]
    if not systems:
        raise DataError("nothing to measure: --no-bm25, --no-late and no --single")
    return systems


def _named(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    return (name, folder) if equals else (Path(text).name or text, text)


# -- comparing -----------------------------------------------------------------------------------------


def _read(bases: tuple[str, ...], collections: int) -> list[System]:
    """Turn the run files among those to compare with into systems; the other names are rows of the table."""
    from weft.evaluation.baselines import System
    from weft.evaluation.runs import read_run

    found = []
    for base in bases:
        if not Path(base).is_file():
            continue
        if collections != 1:
            raise DataError(f"--compare {base}: a run is of one collection, there are {collections}; name a row")
        run = read_run(base)

        def search(pool: Any, depth: int, among: Any = None, run: Any = run) -> Any:  # noqa: ARG001
            known = pool.documents
            return {q: {d: s for d, s in run.get(q, {}).items() if d in known} for q in pool.queries}

        found.append(System(Path(base).stem, search))
    return found


def _add(results: Results, bases: tuple[str, ...], judged: Qrels) -> None:
    from weft.evaluation.measures import evaluate as measure
    from weft.evaluation.runs import read_run

    (collection,) = results.collections
    for base in bases:
        name = Path(base).stem
        if base in results.systems:
            continue
        if (collection, name) in results.scores:
            raise DataError(f"two runs are called {name!r}: rename a file")
        results.scores[collection, name] = measure(read_run(base), judged, results.measures)


def _row(base: str, results: Results) -> str:
    for name in (base, Path(base).stem):
        if name in results.systems:
            return name
    raise DataError(f"--compare {base}: no such file, and no such row; rows are {', '.join(results.systems)}")


# -- printing ------------------------------------------------------------------------------------------


def _print(results: Results, bases: tuple[str, ...], per_query: Path | None, format_: Format) -> None:
    from weft.evaluation.tables import page

    rows = [_row(base, results) for base in bases]
    others = [system for system in results.systems if system not in rows]
    comparisons = [results.comparisons(row, others or results.systems, results.measures[0]) for row in rows]
    if per_query is not None:
        _write_per_query(per_query, results)
    tables = [*results.tables(), *comparisons]
    if format_ is Format.json:
        typer.echo(json_line(_as_json(results, comparisons)))
    elif format_ is Format.html:
        typer.echo(page(tables, "weft evaluate"))
    elif format_ is Format.csv:
        typer.echo("\n".join(table.csv() for table in tables), nl=False)
    else:
        for table in tables:
            note = f"\n{table.note}\n" if table.note else ""
            typer.echo(f"**{table.title}**\n\n{table.markdown()}\n{note}")


def _as_json(results: Results, comparisons: list[Table]) -> dict[str, Any]:
    rows = []
    for collection, system in results.scores:
        documents, queries = results.sizes[collection]
        means = {name: results.mean(collection, system, name) for name in results.measures}
        rows.append(
            {
                "collection": collection,
                "documents": documents or None,
                "queries": queries,
                "system": system,
                "measures": {name: _interval(mean) for name, mean in means.items()},
            }
        )
    averages = {
        system: {name: _interval(results.average(system, name)) for name in results.measures}
        for system in results.systems
    }
    return {
        "schema": "weft.evaluate/1",
        "measures": list(results.measures),
        "results": rows,
        "averages": averages,
        "comparisons": [table.data() for table in comparisons],
    }


def _interval(mean: Any) -> dict[str, float | None] | None:
    from math import isfinite

    if mean is None:
        return None
    return {key: value if isfinite(value) else None for key, value in mean._asdict().items()}


def _write_per_query(path: Path, results: Results) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(("collection", "system", "query", *results.measures)) + "\n")
        for (collection, system), scores in results.scores.items():
            for query in scores.queries:
                values = [f"{scores.per_query[name][query]:.6g}" for name in results.measures]
                file.write("\t".join((collection, system, query, *values)) + "\n")
