"""Generative and multi-vector models on one T5, trained alike (or given), and the held-out queries to measure them on.

All are trained on one corpus, by one recipe in which only the method changes: the same T5 from the same seed, the same
tokenizer, as many steps of as many pairs. In the quick form that is the demo collection and some seconds.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import NeedsError
from weft.analysis.estimates import Interval, estimate
from weft.analysis.lab import Lab
from weft.analysis.variants import digest, quiet
from weft.errors import missing_extra
from weft.evaluation.baselines import candidates_with_gold
from weft.evaluation.pools import Pool, pool_of
from weft.sources.beir import DEMO, BeirDocument, Collection

if TYPE_CHECKING:
    from weft.generative.model import GenerativeModel
    from weft.generative.multivector import MultiVectorModel
    from weft.generative.recipes import Recipe

logger = logging.getLogger(__name__)

PER_SEED = "± is half of the 95 % interval over seeds (Student's t); of a single seed, over queries (bootstrap)."
QUICK_QUERIES = 8


@dataclass(frozen=True)
class Kind:
    """A model to compare: what it changes in the recipe, or the alignment it is a multi-vector model of."""

    key: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    alignment: str = ""


SEAL = Kind("seal", {"identifiers.method": "seal"})
"""GR of the re-ranking setting, and T5-SEAL end to end."""
Q_TO_D = Kind("mvdr-q-d", alignment="sum-of-max")
D_TO_Q = Kind("mvdr-d-q", alignment="document-to-query:0.1")


@dataclass(frozen=True)
class Trained:
    """A trained model on disk."""

    kind: Kind
    seed: int | None
    """None for a given one."""
    folder: Path

    @property
    def log(self) -> dict[str, float]:
        """The last line of its log: step, loss, seconds; {} for a model without."""
        from weft.generative.run import LOG

        path = self.folder.parent / LOG
        if not path.is_file():
            return {}
        found: dict[str, float] = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
        return found


class Workshop:
    """Where the models of an experiment come from.

    Parameters
    ----------
    lab : Lab
        Its recipe (``--recipe``) says what to train with and on; its generative models, if it has any, are used as they
        are.
    seeds : sequence of int
        One model for each.
    """

    def __init__(self, lab: Lab, seeds: Sequence[int]) -> None:
        try:
            import torch
        except ImportError:
            raise missing_extra("torch", "generative", "an experiment with generative models") from None
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        torch.set_num_threads(lab.options.threads)
        self.lab, self.seeds = lab, tuple(seeds)
        self.given: dict[str, list[Path]] = {}
        if lab.given:
            from weft.generative.model import SETTINGS

            for _, folder in lab.options.models:
                if (Path(folder) / SETTINGS).is_file():
                    self.given.setdefault(_key_of(Path(folder)), []).append(Path(folder))

    # -- what to learn from, what to measure on ----------------------------------------------------

    @cached_property
    def recipe(self) -> Recipe | None:
        """The recipe to train with; None where there is none."""
        from weft.generative.recipes import build_recipe, read_recipe

        options = self.lab.options
        if options.quick:
            return build_recipe(quick_tables())
        if options.generative is None:
            return None
        steps = [] if options.steps is None else ["training.epochs=0", f"training.steps={options.steps}"]
        return read_recipe(options.generative, steps, options.folders)

    @cached_property
    def folder(self) -> Path:
        """The corpus with its queries in BEIR's layout: train to learn from, test to measure on."""
        from weft.generative.corpus import read_data, write_collection

        if self.recipe is None:
            beside = [folder.parent / "collection" for folders in self.given.values() for folder in folders]
            found = next((folder for folder in beside if folder.is_dir()), None)
            if found is None:
                raise NeedsError(
                    "models to compare are needed: --recipe recipes/generative/seal-small.toml --data FOLDER trains "
                    "them, or -m NAME=FOLDER takes those of weft generative train"
                )
            return found
        work = self.lab.options.work / "generative"
        if self.lab.options.quick:
            return _write_demo(work / "demo")
        seed = self.recipe.training.seed
        folder = work / f"corpus-{digest([asdict(source) for source in self.recipe.data] + [seed])}"
        if not (folder / "qrels" / "test.tsv").exists():  # written last
            logger.info("reading the corpus")
            corpus = read_data(self.recipe.data, seed)
            write_collection(corpus, folder, {"train": corpus.pairs, "test": corpus.heldout})
        return folder

    @cached_property
    def collection(self) -> Collection:
        """The corpus and the held-out queries."""
        found = Collection.read(self.folder)
        if not found.queries:
            raise NeedsError("no queries are held out: set the recipe's data.heldout")
        return found

    @cached_property
    def pool(self) -> Pool:
        """The whole corpus, with so many of the held-out queries as the lab asks for."""
        options = self.lab.options
        queries = QUICK_QUERIES if options.quick else options.queries or len(self.collection.queries)
        collection = replace(self.collection, name=self.name)
        found = pool_of(collection, documents=len(collection.documents), queries=queries, seed=options.seed)
        self.lab.used_pools[found.digest] = found
        return found

    @property
    def name(self) -> str:
        """What the corpus is called."""
        if self.lab.options.quick:
            return "demo"
        if self.recipe is None:
            return self.folder.parent.name
        return "+".join(Path(source.path).name for source in self.recipe.data)

    @property
    def titled(self) -> dict[str, BeirDocument]:
        """The documents with their titles."""
        return {document.id: document for document in self.collection.documents}

    def candidates(self, depth: int) -> dict[str, list[str]]:
        """Return for each query the relevant documents and BM25's best, `depth` of the latter, the relevant first."""
        found = candidates_with_gold(self.pool, depth)
        gold = {query: [d for d, grade in self.pool.qrels[query].items() if grade >= 1] for query in found}
        return {query: list(dict.fromkeys([*gold[query], *names])) for query, names in found.items()}

    # -- models ------------------------------------------------------------------------------------

    def trained(self, kind: Kind) -> list[Trained]:
        """Return the models of a kind, given or one for each seed; what is not there is trained."""
        if kind.key in self.given:
            return [Trained(kind, None, folder) for folder in self.given[kind.key]]
        if self.recipe is None:
            raise NeedsError(
                f"a model of the kind {kind.key} is needed: --recipe recipes/generative/seal-small.toml trains it, or "
                "-m NAME=FOLDER gives one"
            )
        return [Trained(kind, seed, self._train(kind, seed)) for seed in self.seeds]

    def generative(self, model: Trained) -> GenerativeModel:
        """Load a generative model."""
        from weft.generative.model import GenerativeModel

        with quiet():
            return GenerativeModel.load(model.folder)

    def multivector(self, model: Trained) -> MultiVectorModel:
        """Load a multi-vector model."""
        from weft.generative.multivector import MultiVectorModel

        with quiet():
            return MultiVectorModel.load(model.folder)

    def _train(self, kind: Kind, seed: int) -> Path:
        from weft.generative.recipes import DataSettings, build_recipe
        from weft.generative.run import CHECKPOINT, train

        assert self.recipe is not None
        tables = self.recipe.as_dict()
        for key, value in kind.changes.items():
            table, _, name = key.partition(".")
            tables[table] = {**tables[table], name: value}
        tables["training"] = {**tables["training"], "seed": seed, "output": ""}
        tables["data"] = [asdict(DataSettings(str(self.folder)))]
        named = f"{kind.key}-{seed}-{digest([tables['data'], self._form(kind) or '', _without(tables, 'data')])}"
        output = self.lab.options.work / "generative" / named
        done = output / "done"
        if not done.exists():
            logger.info("training %s, seed %d", kind.key, seed)
            tables["training"]["output"] = str(output)
            with quiet():  # goes on from its last checkpoint, if it was interrupted
                train(build_recipe(tables), progress=False, **self._options(kind))
            (output / CHECKPOINT).unlink(missing_ok=True)  # three times the size of the model, and no longer needed
            done.touch()
        return output / "model"

    def _form(self, kind: Kind) -> list[Any]:
        """What a multi-vector model adds to the recipe: its alignment, and how many tokens of a document it reads."""
        return [kind.alignment, self.document_length] if kind.alignment else []

    @property
    def document_length(self) -> int:
        """The maximum number of tokens that models read of a document."""
        return 64 if self.lab.options.quick else self.lab.options.length

    def _options(self, kind: Kind) -> dict[str, Any]:
        if not kind.alignment:
            return {}
        from weft.generative.multivector import prepare_multivector

        alignment, length = self._form(kind)
        return {"prepare": prepare_multivector(alignment, length=length)}


def over_seeds(per_seed: Sequence[NDArray[np.floating[Any]]]) -> Interval:
    """Return the mean of seeds' means, with Student's interval over seeds; of one seed, the bootstrap over queries.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("scipy")
    >>> found = over_seeds([np.array([0.5]), np.array([0.6]), np.array([0.7])])
    >>> [round(float(bound), 3) for bound in found]
    [0.6, 0.352, 0.848]
    """
    if len(per_seed) == 1:
        return estimate(per_seed[0])
    from scipy.stats import t

    means = np.array([float(np.mean(values)) for values in per_seed])
    half = float(t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means)))
    return Interval(float(means.mean()), float(means.mean()) - half, float(means.mean()) + half)


def quick_tables() -> dict[str, Any]:
    """Return a recipe of some seconds."""
    return {
        "model": {"size": "tiny", "vocabulary": 1000, "query_length": 24, "dropout": 0.0},
        "identifiers": {"method": "seal", "k": 6, "c": 12, "pawa_layers": 1, "pawa_heads": 2, "np_clusters": 2},
        "examples": {"documents": 0.25, "document_length": 24},
        "training": {
            "output": "",
            "steps": 10,
            "batch_size": 12,
            "learning_rate": 3e-3,
            "save_every": 10_000,
            "log_every": 5,
        },
        "data": [{"path": ""}],
    }


def _write_demo(folder: Path) -> Path:
    """Write the demo collection with every other query to learn from."""
    from weft.generative.corpus import write_qrels

    if not (folder / "qrels" / "train.tsv").exists():
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for name in ("corpus.jsonl", "queries.jsonl"):
            (folder / name).write_bytes((DEMO / name).read_bytes())
        judged = Collection.read(DEMO).relevant()
        for split, first in (("test", 1), ("train", 0)):
            some = list(judged)[first::2]
            write_qrels(folder, split, [(query, d, g) for query in some for d, g in judged[query].items()])
    return folder


def _key_of(folder: Path) -> str:
    """Tell the kind of a model from its settings."""
    from weft.generative.model import read_settings

    found = read_settings(folder)
    method = str(found.get("method", ""))
    if found.get("alignment"):
        return Q_TO_D.key if str(found["alignment"]).startswith("sum-of-max") else D_TO_Q.key
    if method == "dsi" and found.get("pawa"):
        return "dsi-pawa"
    if method == "genre" and found.get("frozen_table"):
        return f"genre-np-{found.get('np', 'base')}"
    return method


def _without(tables: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in tables.items() if name not in (key, "notes")}
