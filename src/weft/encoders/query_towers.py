"""Query towers: smaller encoders of queries that give nearly the vectors of a model, at a fraction of its cost.

They lie beside a light model's files. Documents are encoded by the model, so an index serves queries of either:

    query-fast.json     query-fast.onnx     a few layers: ids (1, T), embeddings (1, T, width) → vectors, salience
    query-static.json   query-static.npz    a table of token vectors and two small matrices; NumPy alone

The JSON says which model a tower belongs to (`Encoder.fingerprint`). The embeddings of a fast tower are the model's
own, read from ``model.onnx`` where they stand. `weft train` makes towers, from a recipe with a ``[tower]`` table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.encoders.backend import Batch, Batches, Output
from weft.encoders.graph_tables import embedding_table
from weft.encoders.settings import Settings
from weft.errors import CheckpointError, first_line

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

FORMAT = 1
FULL, FAST, STATIC = "full", "fast", "static"
WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"
QUERIES = (FULL, FAST, STATIC)
SUFFIXES = {FAST: ".onnx", STATIC: ".npz"}
TOWER_FILES = tuple(f"query-{kind}{suffix}" for kind, suffix in SUFFIXES.items())
"""The files beside the JSON."""


@dataclass(frozen=True)
class TowerSettings:
    """What the JSON of a tower says.

    `name` is its own; `model` the fingerprint of the model it is of; `vocabulary` the number of tokens; `bytes` the
    size of the file beside it.
    """

    kind: str
    name: str
    model: str
    dim: int
    vocabulary: int
    bytes: int
    provenance: dict[str, Any]

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> TowerSettings:
        """Read what `to_json` wrote."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            version = data.pop("format", None)
        except (OSError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be read: {first_line(error)}") from None
        if version != FORMAT:
            raise CheckpointError(f"{path} has format {version!r}; this version of weft reads format {FORMAT}")
        try:
            return cls(**data)
        except TypeError as error:
            raise CheckpointError(f"{path} does not describe a query tower: {error}") from None


def tower_file(kind: str) -> str:
    """Return the name of a tower's JSON."""
    return f"query-{kind}.json"


def available(folder: Path) -> tuple[str, ...]:
    """Return the query encoders of a light folder: ``"full"``, and the towers that are there."""
    return (FULL, *(kind for kind in SUFFIXES if (folder / tower_file(kind)).is_file()))


def load_tower(kind: str, folder: Path, model: Path, settings: Settings, vocabulary: int) -> QueryTower:
    """Load a tower and check that it is of this model.

    Parameters
    ----------
    kind : {"fast", "static"}
    folder : Path
        Where the tower's files are: the model's folder, as a rule.
    model : Path
        The model's graph.
    settings : Settings
        The model's.
    vocabulary : int
        Tokens of its tokenizer.
    """
    source = folder / tower_file(kind)
    if not source.is_file():
        there = ", ".join(repr(name) for name in available(folder))
        raise CheckpointError(f"{settings.name} has no {kind} query tower ({source.name}); it has {there}")
    described = TowerSettings.read(source)
    for what, found, wanted in (
        ("kind", described.kind, kind),
        ("dim", described.dim, settings.dim),
        ("vocabulary", described.vocabulary, vocabulary),
        ("model", described.model, settings.fingerprint),
    ):
        if found != wanted:
            raise CheckpointError(
                f"{source} is not a tower of {settings.name}: its {what} is {found!r} instead of {wanted!r}"
            )
    if settings.query.expansion is not None:
        raise CheckpointError(f"{settings.name} fills queries up with a token, which query towers do not do")
    path = source.with_suffix(SUFFIXES[kind])
    if not path.is_file():
        raise CheckpointError(f"{source} is not a whole query tower: {path.name} is missing")
    if path.stat().st_size != described.bytes:
        size = path.stat().st_size
        raise CheckpointError(f"{path} has {size:,} bytes instead of {described.bytes:,}: the copy is not whole")
    return FastTower(path, model, described, settings) if kind == FAST else StaticTower(path, described)


class QueryTower:
    """What both towers share: they encode texts one at a time, many of them on several threads."""

    kind = "light"
    batched = False
    settings: TowerSettings

    def fingerprint(self) -> str:
        """Return the model's fingerprint: a tower's vectors are in the same space."""
        return self.settings.model

    def run(self, batches: Batches, task: str, threads: int) -> Iterator[Output]:  # noqa: ARG002 (only queries)
        """Yield the output of each batch."""
        if threads == 1 or len(batches) == 1:
            yield from map(self.output, batches)
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="weft-queries") as pool:
            yield from pool.map(self.output, batches)

    def output(self, batch: Batch) -> Output:
        """Encode the queries of a batch, which are of one length."""
        raise NotImplementedError


class FastTower(QueryTower):
    """Runs a few layers on the model's own embeddings."""

    def __init__(self, path: Path, model: Path, tower: TowerSettings, settings: Settings) -> None:
        from weft.encoders.light import open_session

        self.settings = tower
        self._session: InferenceSession = open_session(path)
        self._words = embedding_table(model, WORDS)
        places = np.arange(settings.max_length or settings.query.length)
        self._positions = embedding_table(model, POSITIONS).rows(places)
        self._positions += embedding_table(model, TYPES).rows(np.zeros(1, np.int64))
        given = {wanted.name: wanted.shape for wanted in self._session.get_inputs()}
        found = {output.name: output.shape for output in self._session.get_outputs()}
        width = self._words.shape[1]
        fits = set(given) == {"ids", "embedded"} and set(found) == {"vectors", "salience"}
        if not fits or given["embedded"][-1] != width or found["vectors"][-1] != tower.dim:
            shapes = " → ".join(", ".join(f"{name} {shape}" for name, shape in side.items()) for side in (given, found))
            raise CheckpointError(f"{path} does not fit a model {width} wide with vectors of {tower.dim}: {shapes}")
        if self._words.shape[0] != tower.vocabulary:
            raise CheckpointError(
                f"{model} has embeddings of {self._words.shape[0]:,} tokens, not {tower.vocabulary:,}"
            )

    def output(self, batch: Batch) -> Output:
        """Run the graph."""
        embedded = np.stack([self._words.rows(ids) for ids in batch.ids])
        embedded += self._positions[: batch.ids.shape[1]]
        vectors, salience = self._session.run(["vectors", "salience"], {"ids": batch.ids, "embedded": embedded})
        return Output(vectors, salience)


class StaticTower(QueryTower):
    """Looks up token vectors and adjusts them by their neighbours: no network, no ONNX Runtime.

    The arrays of its file, for V tokens and vectors of d dimensions: ``table`` (V, d) int8 with ``scale`` (V,),
    ``weight`` (V,) in the text's mean and ``salient`` (V,); ``neighbours`` (3d, d) and ``salience`` (3d, 1) for the
    tokens before and after and the mean, ``text`` (2d, 2d) for the two vectors of the whole text, and the biases of
    these three.
    """

    def __init__(self, path: Path, tower: TowerSettings) -> None:
        self.settings = tower
        try:
            with np.load(path, allow_pickle=False) as file:
                held: dict[str, NDArray[Any]] = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise CheckpointError(f"{path} is not a static query tower: {first_line(error)}") from None
        d, v = tower.dim, tower.vocabulary
        shapes = {
            "table": (v, d), "scale": (v,), "weight": (v,), "salient": (v,), "neighbours": (3 * d, d),
            "neighbours_bias": (d,), "text": (2 * d, 2 * d), "text_bias": (2 * d,), "salience": (3 * d, 1),
            "salience_bias": (1,),
        }  # fmt: skip
        for name, shape in shapes.items():
            array = held.get(name)
            if array is None or array.shape != shape:
                found = "missing" if array is None else f"of shape {array.shape}"
                raise CheckpointError(f"{path}: the array {name!r} must be of shape {shape}, and is {found}")
            if array.dtype.kind not in "if" or not np.isfinite(array).all():
                raise CheckpointError(f"{path}: the array {name!r} has values that are not finite numbers")
            if name != "table":
                held[name] = np.ascontiguousarray(array, np.float32)
        self._arrays = held
        self._dim = d

    def output(self, batch: Batch) -> Output:
        """Look up and mix."""
        found = [self._encode(ids) for ids in batch.ids]
        return Output(np.stack([vectors for vectors, _ in found]), np.stack([scores for _, scores in found]))

    def _encode(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        a, d = self._arrays, self._dim
        own = a["table"][ids] * a["scale"][ids, None]  # (T, d)
        share = np.exp(a["weight"][ids])
        mean = (share @ own) / share.sum()
        around = np.zeros((len(ids), 3 * d), np.float32)  # the token before, the one after, the mean
        around[1:, :d] = own[:-1]
        around[:-1, d : 2 * d] = own[1:]
        around[:, 2 * d :] = mean
        vectors = own + around @ a["neighbours"] + a["neighbours_bias"]
        text = np.concatenate([mean, vectors.mean(axis=0)]) @ a["text"] + a["text_bias"]
        vectors[0], vectors[-1] = text[:d], text[d:]
        vectors /= np.maximum(np.sqrt(np.einsum("td,td->t", vectors, vectors)), 1e-12)[:, None]
        scores = a["salient"][ids] + (around @ a["salience"])[:, 0] + a["salience_bias"]
        return vectors, np.maximum(scores, 0)
