"""What experiments share: models, pools and encodings, each loaded or computed once."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import NeedsError
from weft.encoders import Encoder
from weft.errors import DataError, invalid
from weft.evaluation.baselines import slug
from weft.evaluation.benchmark import Cut
from weft.evaluation.datasets import Dataset, find, hint
from weft.evaluation.measures import Scores, evaluate
from weft.evaluation.pools import Encoded, Pool, encode, pool_of
from weft.evaluation.scoring import to_run
from weft.evaluation.suites import suite
from weft.sources.beir import DEMO, Collection

HELD = 2 << 30
"""Encoded pools are held in memory up to this many bytes; the last one always is."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    work: Path
    """Where encodings and trained models are kept."""
    data: Path | None = None
    """A folder of collections in BEIR's layout."""
    suite: str = "offline"
    """Which list of collections (`weft.evaluation.suites`); ``offline`` is whatever is in the folder."""
    collections: tuple[str, ...] = ()
    """Only these of the suite, ``name`` or ``name:split``."""
    without: tuple[str, ...] = ()
    """All but these, by the names of their folders or by their own."""
    documents: int = 250
    """Documents of a pool; 0 keeps collections whole."""
    queries: int = 100
    """Queries of a pool; 0 keeps all."""
    models: tuple[tuple[str, str], ...] = ()
    """(name, folder); by default the bundled model."""
    quick: bool = False
    """Make everything small, on the demo collection."""
    length: int = 256
    """The maximum number of tokens of a document."""
    recipe: Path | None = None
    """What to train models with, for experiments that compare trained ones."""
    generative: Path | None = None
    """The same for experiments with generative models."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """What ``{data}`` and ``{models}`` in the recipe stand for."""
    steps: int | None = None
    """Steps of a training run, other than the recipe's."""
    threads: int = 1
    seed: int = 5

    def __post_init__(self) -> None:
        for name, least in (("documents", 0), ("queries", 0), ("length", 8), ("threads", 1), ("steps", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise invalid(name, "weft experiment", f"at least {least}", value)


@dataclass(frozen=True, eq=False)
class Model:
    """A model by name, loaded when it is needed."""

    name: str
    folder: str | None
    """None: the bundled one."""
    length: int
    states: Path | None = None
    """Where models that were trained here keep the outputs of frozen layers, for all of one base."""

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder itself; it reads at most `length` tokens of a document."""
        found = Encoder.load(self.folder)
        if found.document_length > self.length:
            found = Encoder(found.settings.with_lengths(None, self.length), found.tokenizer, found.backend)
        return found

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The recipe it was trained with by ``weft train``, if it stands beside it; else {}."""
        if self.folder is None:
            return {}
        for path in (Path(self.folder) / "recipe.json", Path(self.folder).parent / "recipe.json"):
            if path.is_file():
                found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
                return found
        return {}

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Look up the states of a text if the encoder is a frozen one that others share; else compute them."""
        frozen = self.recipe.get("model", {}).get("frozen_layers", 0)
        backend: Any = self.encoder.backend
        if self.states is None or not frozen or backend.kind != "torch":
            yield
            return
        from weft.training.frozen import encoder_layers, remember
        from weft.training.run import base_identity

        module = backend.model[0].auto_model
        if frozen < len(encoder_layers(module)):  # the rest is the model's own
            yield
            return
        with remember([module], frozen, self.states, base_identity(module)):
            yield


class Lab:
    """Everything that experiments share."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._encoded: dict[tuple[str, str], Encoded] = {}
        self._own: set[str] = set()
        self._parts: dict[str, tuple[Pool, range]] = {}
        """Pools that are some queries of others, by digest."""
        self.used: dict[str, Model] = {}
        """Models by name, since `begin`."""
        self.used_pools: dict[str, Pool] = {}
        """Pools by digest, since `begin`."""

    def begin(self) -> None:
        """Forget which models and pools were used."""
        self.used, self.used_pools = {}, {}

    @cached_property
    def models(self) -> list[Model]:
        """The models given, or the bundled one."""
        named = dict(self.options.models)
        if len(named) < len(self.options.models):
            raise NeedsError("two models have the same name")
        found = [Model(name, folder, self.options.length) for name, folder in self.options.models]
        return found or [Model("weft-small", None, self.options.length)]

    @property
    def given(self) -> bool:
        """Whether the models to compare were given; not in the quick form, which trains its own."""
        return bool(self.options.models) and not self.options.quick

    @cached_property
    def pools(self) -> list[Pool]:
        """The collections, cut to the size asked for."""
        options = self.options
        if options.quick and options.data is None:
            return [pool_of(Collection.read(DEMO))]
        cut = Cut(options.documents or None, options.queries or None, options.seed)
        made = []
        for dataset in self._wanted():
            logger.info("reading %s", dataset.name)
            task = dataset.load(options.data)
            pool = cut.pool(task)
            if task.drop_own:
                self._own.add(pool.name)
            made.append(pool)
        return made

    @cached_property
    def held_out(self) -> list[Pool]:
        """The pools without queries that models trained here have seen."""
        if not self.options.quick:
            return self.pools  # recipes train on other splits
        halves = []
        for pool in self.pools:
            part = range(1, len(pool.queries), 2)
            names = list(pool.queries)
            halves.append(replace(pool, queries={names[i]: pool.queries[names[i]] for i in part}))
            self._parts[halves[-1].digest] = (pool, part)
        return halves

    def _wanted(self) -> list[Dataset]:
        found = self._datasets()
        names = {name for dataset in found for name in (dataset.name, Path(dataset.folder).name)}
        for name in self.options.without:
            if name not in names:
                known = ", ".join(dataset.name for dataset in found)
                raise NeedsError(f"{name!r} cannot be left out: there are {known}")
        without = set(self.options.without)
        kept = [dataset for dataset in found if not without & {dataset.name, Path(dataset.folder).name}]
        if not kept:
            raise NeedsError("no collection is left")
        return kept

    def _datasets(self) -> list[Dataset]:
        options = self.options
        if options.data is not None and not options.data.is_dir():
            raise DataError(f"no such folder of collections: {str(options.data)!r}")
        if options.suite != "offline":
            return suite(options.suite).found(options.data, options.collections)
        if options.collections:
            return [find(name, data=options.data) for name in options.collections]
        if options.data is None:
            raise NeedsError(f"no collections: {hint()}, or take the demo collection with --quick")
        return suite("offline").found(options.data)

    def measure(self, pool: Pool, scores: NDArray[np.floating[Any]], *measures: str, depth: int = 100) -> Scores:
        """Measure scores (queries, documents); −∞ stands for documents that were not found."""
        return evaluate(self.run(pool, scores, depth), {query: pool.qrels[query] for query in pool.queries}, measures)

    def run(self, pool: Pool, scores: NDArray[np.floating[Any]], depth: int = 100) -> dict[str, dict[str, float]]:
        """Turn scores (queries, documents) into a run; −∞ stands for documents that were not found."""
        if pool.name in self._own:  # a query that is a document of the collection is never its own answer
            scores = scores.copy()
            place = {name: i for i, name in enumerate(pool.documents)}
            for row, query in enumerate(pool.queries):
                if query in place:
                    scores[row, place[query]] = -np.inf
        return to_run(pool.queries, list(pool.documents), scores, depth)

    def encoded(self, model: Model, pool: Pool) -> Encoded:
        """Return a pool's token vectors, from the work folder if they are there."""
        digest = pool.digest
        self.used[model.name], self.used_pools[digest] = model, pool
        if digest in self._parts:
            whole, part = self._parts[digest]
            encoded = self._encode(model, whole, whole.digest)
            return encoded._replace(queries=encoded.queries.select(part))
        return self._encode(model, pool, digest)

    def _encode(self, model: Model, pool: Pool, digest: str) -> Encoded:
        key = (model.name, digest)
        if key not in self._encoded:
            while sum(e.documents.values.nbytes for e in self._encoded.values()) > HELD:
                del self._encoded[next(iter(self._encoded))]
            logger.info("encoding %s with %s", pool.name, model.name)
            folder = self.options.work / "encodings" / f"{slug(model.name)}-{model.encoder.document_length}"
            with model.remembering():
                self._encoded[key] = encode(pool, model.encoder, folder, threads=self.options.threads)
        return self._encoded[key]
