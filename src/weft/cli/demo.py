"""``weft demo``: the bundled collection indexed, searched, explained and measured."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.opening import Model
from weft.cli.serve import server_room, start
from weft.errors import CheckpointError, IndexFormatError, IndexStateError, counted
from weft.text_index import TextIndex, is_taken
from weft.types import Document

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from weft.sources.beir import BeirDocument, Collection
    from weft.types import Ranking

SHOWN = ("window-corners", "lizard-window", "clean-fingers")
"""Queries to show: a question, and two that share no word with the passage that answers."""


def demo(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The demo's index.")] = Path("demo.weft"),
    model: Model = None,
    serve: Annotated[bool, typer.Option("--serve", help="Open the search page in a browser.")] = False,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            "-p",
            min=0,
            max=65535,
            help="The port of --serve; 0 picks a free one.",
        ),
    ] = 8080,
) -> None:
    """Try weft on a small collection.

    Indexes the passages that come with weft, searches them, explains a result, and measures all judged queries.
    """
    from weft.cli.answers import console
    from weft.sources.beir import DEMO, Collection

    if serve:
        server_room()  # report what is missing before any work
    collection = Collection.read(DEMO)
    out = console()
    with _opened(index, model, collection) as texts:
        begun = time.perf_counter()
        summary = texts.add(map(_document, collection.documents), split=False)
        took = time.perf_counter() - begun
        done = f"indexed in {took:.1f} s" if summary.passages else "already indexed"
        out.print(f"{counted(len(texts), 'passage')} {done} with {texts.encoder.name}: {index}\n", style="dim")
        if not serve:
            _tour(texts, collection, out)
    if serve:
        _serve(index, model, port)
        return
    weft, question = _program(), collection.queries[SHOWN[0]]
    for what, line in (
        ("See the explanation in a browser", f'explain {index} "{question}" --html why.html'),
        ("Ask it anything", f"search {index}"),
        ("Search it in a browser", f"demo {index} --serve"),
        ("Index your own files", "index FOLDER -o notes.weft"),
    ):
        out.print(f"\n{what}:", style="dim")
        out.print(f"  {weft} {line}", soft_wrap=True)


def _tour(texts: TextIndex, collection: Collection, out: Console) -> None:
    """Show some searches, an explanation, and the quality over all judged queries."""
    from weft.explain.terminal import print_explanations

    for name in SHOWN:
        _show(texts, collection.queries[name], out)
    out.rule("Why the first one was found", align="left", style="dim")
    print_explanations(out, texts.explain(collection.queries[SHOWN[0]]), pairs=8)
    out.rule(f"All {len(collection.queries)} judged queries", align="left", style="dim")
    out.print(_measured(texts, collection))


def _serve(index: Path, model: str | None, port: int) -> None:
    """Serve the demo's index on this machine, and open the page where a person watches."""
    import webbrowser

    from weft.serving.naming import named, open_indexes

    def opened(address: str) -> None:
        if sys.stdout.isatty():
            webbrowser.open(address)

    start(
        open_indexes(named([index]), model),
        host="127.0.0.1",
        port=port,
        keys=None,
        limits={},
        also=opened,
    )


def _opened(path: Path, model: str | None, collection: Collection) -> TextIndex:
    """Open the demo's index, or make it. An index of another model is replaced; one of other documents is refused."""
    if is_taken(path):
        with TextIndex.open(path) as found:
            ours = sum(document.id in found for document in collection.documents)
            if ours != len(found):
                raise IndexStateError(f"{path} holds other documents: name another folder for the demo's index")
        try:
            return _with_encoder(TextIndex.open(path, model=model))
        except (IndexFormatError, CheckpointError):
            shutil.rmtree(path)
    return TextIndex.open(path, create=True, model=model)


def _with_encoder(texts: TextIndex) -> TextIndex:
    try:
        _ = texts.encoder
    except BaseException:
        texts.close()
        raise
    return texts


def _document(given: BeirDocument) -> Document:
    return Document(given.id, given.full_text, {"title": given.title, **given.metadata})


def _show(texts: TextIndex, query: str, out: Console) -> None:
    from weft.cli.answers import Settings, print_answer

    settings = Settings(2, None, None, False, None, None)
    out.print(query, style="bold underline")
    with texts.view():
        (answer,) = texts.answers([query], settings.k, **settings.searched)
        print_answer(texts, answer, settings, out)
    out.print()


def _measured(texts: TextIndex, collection: Collection) -> Table:
    """Return nDCG@10 and time of each way to search, all queries and those of each kind."""
    import numpy as np
    from rich import box
    from rich.table import Table

    from weft.encoders.drift import ndcg
    from weft.search.lexical import search_lexical
    from weft.sources.beir import DEMO, objects

    numbers = {document.id: number for number, document in enumerate(collection.documents)}
    kinds = {row["_id"]: row["metadata"]["kind"] for row in objects(DEMO / "queries.jsonl")}
    ways: dict[str, Callable[[str], Ranking]] = {
        "token vectors": lambda text: texts.answers([text], hits=False)[0].ranking,
        "BM25 (FTS5)": lambda text: search_lexical(texts.index, text),
        "hybrid": lambda text: texts.answers([text], hybrid=True, hits=False)[0].ranking,
    }
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="dim")  # fits 80 columns
    table.add_column("nDCG@10", no_wrap=True)
    for name in ("all", *dict.fromkeys(kinds.values()), "ms a query"):
        table.add_column(name, justify="right")
    for way, search in ways.items():
        begun = time.perf_counter()
        found = {name: search(text) for name, text in collection.queries.items()}
        took = (time.perf_counter() - begun) / len(found)
        scores = {
            name: ndcg(
                np.array([numbers[id] for id in ranking.ids], dtype=np.int64),  # noqa: A001
                {numbers[document]: grade for document, grade in collection.qrels[name].items()},
            )
            for name, ranking in found.items()
        }
        means = [
            np.mean([scores[name] for name in scores if kinds[name] == kind]) for kind in dict.fromkeys(kinds.values())
        ]
        cells = [np.mean(list(scores.values())), *means]
        table.add_row(way, *(f"{mean:.3f}" for mean in cells), f"{1000 * took:.1f}")
    return table


def _program() -> str:
    """Return how this program was called, for lines to copy."""
    called = Path(sys.argv[0])
    found = shutil.which("weft")
    if called.name != "weft" or (found and os.path.realpath(found) == os.path.realpath(called)):
        return "weft"
    return str(called)
