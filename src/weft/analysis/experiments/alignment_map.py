"""The alignment matrix of one query and one document, as multi-vector and generative models see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.alignment import align
from weft.analysis.base import Experiment, NeedsError, Outcome
from weft.analysis.generative import D_TO_Q, Q_TO_D, SEAL, Workshop
from weft.analysis.lab import Lab
from weft.analysis.plots import RISING, drawing, finish, heatmap
from weft.evaluation.tables import Cell, Table

FORWARD, BACKWARD, GR = "MVDR (q→d)", "MVDR (q←d)", "GR"
PAIRS = 8


@dataclass(frozen=True)
class Map:
    """A matrix to draw."""

    title: str
    values: NDArray[np.floating[Any]]
    """(n, m), the part of the document that is shown."""
    unit: str
    aligned: NDArray[np.bool_] | None = None
    """Cells to mark: where A is not 0."""


@dataclass(frozen=True)
class AlignmentMap(Experiment):
    """Heat maps of any pair, and every head's."""

    name: ClassVar[str] = "alignment-map"
    title: ClassVar[str] = "Alignments of one query and one document"
    reproduces: ClassVar[str] = "GR as MVDR figure 5"
    paper: ClassVar[str] = (
        "For a question about a song, MVDR matches the song's title and the names of people exactly, with high scores. "
        "In GR this is less marked, but document tokens attend more to the names and the title than to other words."
    )
    trains: ClassVar[bool] = True
    quick: ClassVar[dict[str, Any]] = {"seeds": (1,), "tokens": 14}

    seeds: tuple[int, ...] = (17,)
    query: str = ""
    """A text; by default the first held-out query."""
    document: str = ""
    """A text, or the id of a document; by default the query's relevant one."""
    tokens: int = 24
    """Tokens of the document to show, from the likeliest beginning of a query-conditioned span on."""

    def run(self, lab: Lab) -> Outcome:
        """Draw one model of each kind."""
        from weft.generative.reranking import SpanReader, VectorReader

        shop = Workshop(lab, self.seeds[:1])
        query, text = self._pair(shop)
        outcome = Outcome()
        maps: dict[str, Map] = {}
        generative = shop.generative(shop.trained(SEAL)[0])
        readers = {}
        for name, kind in ((FORWARD, Q_TO_D), (BACKWARD, D_TO_Q)):
            readers[name] = VectorReader(shop.multivector(shop.trained(kind)[0]), {"": text})
        text = _beginning(generative.tokenizer, text, min(len(r.document("")[1]) - 1 for r in readers.values()))
        reader = SpanReader(generative, {"": text}, spans=1, length=self.tokens)
        (begin, end), *_ = reader.spans(query, "")
        shown = reader.tokens("")[begin:end]
        words = _words(generative.tokenizer, reader.query(query))
        columns = _words(generative.tokenizer, shown)
        for name, vectors in readers.items():
            Q, (D, ids) = vectors.query(query)[0], vectors.document("")
            if ids[begin:end].tolist() != shown:
                raise NeedsError("the models have different tokenizers: train them by one recipe")
            A = np.asarray(align(Q, D, vectors.model.alignment))[:, begin:end]
            if name == FORWARD:
                S = (Q @ D.T)[:, begin:end]
                maps[name] = Map(f"{name}: cosine, aligned pairs framed", S, "S", A > 0)
            else:
                maps[name] = Map(f"{name}: each document token over the query", A, "A")
        traced, _ = reader.trace(query, [""])
        heads = np.stack([traced.attention(layer)[0].numpy() for layer in range(traced.layers)])  # (L, H, n, m)
        maps[GR] = Map(f"{GR}: cross-attention, last layer, mean of heads", heads[-1].mean(0), "A")
        for number, (name, matrix) in enumerate(maps.items()):
            self._draw(f"map-{number + 1}", matrix, words, columns, outcome)
            outcome.tables.append(_strongest(f"pairs-{number + 1}", name, matrix, words, columns))
        _heads(heads, words, outcome)
        self._say(maps, words, columns, outcome)
        outcome.notes += [
            f"Query: {query}",
            f"Document: {text[:400]}",
            f"Shown are its tokens {begin + 1} to {end}; the multi-vector models read all of it, and may align a query "
            "token outside of what is shown. The generative model reads what is shown. Rows are the query's tokens, "
            "the end token too; each column of A sums to 1.",
            "weft generative explain makes a page of the same for any model and pair.",
        ]
        return outcome

    def _pair(self, shop: Workshop) -> tuple[str, str]:
        pool = shop.pool
        first = next(iter(pool.queries))
        query = self.query or pool.queries[first]
        if self.document:
            return query, pool.documents.get(self.document, self.document)
        known = next((name for name, text in pool.queries.items() if text == query), None)
        if known is None:
            raise NeedsError("alignment-map needs a document for that query: document=TEXT, or the id of one")
        return query, pool.documents[max(pool.qrels[known], key=lambda name: pool.qrels[known][name])]

    def _draw(self, name: str, matrix: Map, words: list[str], columns: list[str], outcome: Outcome) -> None:
        from matplotlib.patches import Rectangle

        size = (2.4 + 0.5 * len(columns), 1.9 + 0.36 * len(words))
        with drawing(name, f"{matrix.title}.", outcome.plots, size=size) as axes:
            heatmap(
                axes[0, 0],
                matrix.values,
                words,
                columns,
                xlabel="document token",
                ylabel="query token",
                title=matrix.title,
                unit=matrix.unit,
            )
            axes[0, 0].tick_params(axis="x", labelrotation=60)
            if matrix.aligned is not None:
                for row, column in np.argwhere(matrix.aligned):
                    box = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.2)
                    axes[0, 0].add_patch(box)

    def _say(self, maps: dict[str, Map], words: list[str], columns: list[str], outcome: Outcome) -> None:
        same = np.array([[word == column for column in columns] for word in words])
        if not same.any():
            outcome.findings.append("The shown part of the document has none of the query's words.")
            return
        for name, matrix in maps.items():
            inside, outside = float(matrix.values[same].mean()), float(matrix.values[~same].mean())
            outcome.findings.append(
                f"{name}: {matrix.unit} is {inside:.3f} on average where both tokens are the same word, {outside:.3f} "
                "elsewhere."
            )


def _heads(heads: NDArray[np.floating[Any]], words: list[str], outcome: Outcome) -> None:
    """Draw every head, small, without numbers."""
    layers, each, n, m = heads.shape
    caption = "The cross-attention of every head: query tokens downwards, document tokens to the right."
    size = (max(2.2, 0.16 * m + 1), max(1.8, 0.16 * n + 1))
    with drawing("heads", caption, outcome.plots, columns=each, rows=layers, size=size) as axes:
        for layer in range(layers):
            for head in range(each):
                ax = axes[layer, head]
                ax.imshow(heads[layer, head], cmap=RISING, vmin=0, vmax=1, aspect="auto")
                ax.set_yticks(range(n), words, fontsize=7)
                ax.set_xticks([0, m - 1], ["1", str(m)])
                ax.grid(visible=False)
                finish(ax, "document token", "query token", f"layer {layer + 1}, head {head + 1}")


def _strongest(name: str, system: str, matrix: Map, words: list[str], columns: list[str]) -> Table:
    order = np.argsort(-matrix.values, axis=None, kind="stable")[:PAIRS]
    places = zip(*np.unravel_index(order, matrix.values.shape), strict=True)
    rows: list[list[Cell]] = [[words[i], columns[j], int(j) + 1, float(matrix.values[i, j])] for i, j in places]
    return Table(name, f"{system}: the strongest pairs", ["query", "document", "position", matrix.unit], rows)


def _beginning(tokenizer: Any, text: str, tokens: int) -> str:
    """Return as much of a text as makes that many tokens."""
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return text if len(offsets) <= tokens else text[: offsets[tokens - 1][1]]


def _words(tokenizer: Any, ids: list[int]) -> list[str]:
    """Return tokens as they are read: without the mark of a word's beginning, a hyphen before what continues one."""
    pieces: list[str] = tokenizer.convert_ids_to_tokens(ids)
    special = set(tokenizer.all_special_tokens)
    made = []
    for piece in pieces:
        if piece in special:
            made.append(piece)
        else:
            bare = piece.replace("▁", "")
            made.append(bare if piece.startswith("▁") or not bare.isalnum() else f"-{bare}")
    return made
