"""Models that differ in one setting: given ones, or trained here by a recipe with that setting changed.

In the quick form they are tiny: two random layers over a vocabulary of the demo collection, trained for some seconds on
half of its queries and measured on the other half.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.alignment import Alignment
from weft.analysis.base import NeedsError
from weft.analysis.lab import Lab, Model
from weft.errors import InvalidParameterError, missing_extra
from weft.evaluation.pools import Pool
from weft.sources.beir import DEMO, Collection

if TYPE_CHECKING:
    from weft.training.recipes import Recipe

TINY_STEPS = 25

logger = logging.getLogger(__name__)


def compared(lab: Lab) -> tuple[list[Model], list[Pool]]:
    """Return the models that XTR's analyses compare, and what to measure them on.

    Those given; without any, the bundled one, and where a recipe says how to train (or in the quick form) one trained
    with sum-of-max, as ColBERT, and one with in-batch token retrieval, as XTR.
    """
    if lab.given or (lab.options.recipe is None and not (lab.options.quick and _can_train())):
        return lab.models, lab.pools
    k_train = 16 if lab.options.quick else 64
    alignments = {"ColBERT": "sum-of-max,z=query", "XTR": f"xtr-in-batch:{k_train}"}
    trained = train_variants(lab, {f"{n} here": {"loss.alignment": a} for n, a in alignments.items()}, "models")
    return [*lab.models, *trained.values()], lab.held_out


def _can_train() -> bool:
    return all(find_spec(name) for name in ("torch", "sentence_transformers", "datasets", "accelerate"))


def trained_with(model: Model, what: str) -> str:
    """Return the alignment that a given model was trained with: from its recipe, or else its name."""
    found = model.recipe.get("loss", {}).get("alignment") or model.name
    try:
        return str(Alignment.parse(found))
    except InvalidParameterError:
        raise NeedsError(
            f"{what} must know how {model.name} was trained: name it by its alignment, --model top-k:4=FOLDER, or keep "
            f"the recipe.json that weft train wrote beside it"
        ) from None


def train_variants(lab: Lab, variants: Mapping[str, Mapping[str, Any]], needs: str) -> dict[str, Model]:
    """Train one model for each variant, or find it trained already in the work folder.

    Parameters
    ----------
    lab : Lab
    variants : {name: {"table.key": value}}
        What each one changes in the recipe.
    needs : str
        What the error asks for if there are neither models nor a recipe: "models trained with …".
    """
    if lab.options.recipe is None and not lab.options.quick:
        raise NeedsError(
            f"{needs} are needed: give each as --model NAME=FOLDER, or --recipe FILE (and --models FOLDER) to train "
            "them"
        )
    return {name: _trained(lab, name, changes) for name, changes in variants.items()}


def _trained(lab: Lab, name: str, changes: Mapping[str, Any]) -> Model:
    from weft.training.recipes import read_recipe

    steps = {} if lab.options.steps is None else {"training.steps": lab.options.steps}
    values = {key: json.dumps(value) for key, value in (dict(changes) | steps).items()}  # JSON of these is TOML too
    if lab.options.recipe is not None:
        listed = [f"{key}={value}" for key, value in values.items()]
        recipe = read_recipe(lab.options.recipe, listed, lab.options.folders)
    else:
        recipe = tiny_recipe(lab.options.work / "tiny", dict(changes) | steps)
    remembers = bool(recipe.training.remember_frozen)
    recipe = replace(recipe, training=replace(recipe.training, output="", remember_frozen=""))  # paths do not matter
    output = lab.options.work / "trained" / digest(recipe.as_dict())  # whatever it is called
    if not (output / "model").is_dir():
        logger.info("training %s", name)
        frozen = str(lab.options.work / "frozen") if remembers else ""
        training = replace(recipe.training, output=str(output), remember_frozen=frozen)
        model = replace(recipe.model, base=_begun(lab, recipe)) if remembers else recipe.model
        _train(replace(recipe, model=model, training=training), lab.options.threads)
        shutil.rmtree(output / "checkpoints", ignore_errors=True)  # as large as the model, and no longer needed
    return Model(name, str(output / "model"), lab.options.length, lab.options.work / "frozen" if remembers else None)


def _begun(lab: Lab, recipe: Recipe) -> str:
    """Return the base with its projection begun, one for all variants: the PCA looks at a thousand texts."""
    if recipe.loss.teacher == "base" or recipe.model.projection != "pca":  # such a teacher is the base without it
        return recipe.model.base
    plain = replace(recipe, model=replace(recipe.model, query_gate="", document_gate=""))
    parts = {name: value for name, value in plain.as_dict().items() if name in ("model", "data")}
    folder = lab.options.work / "trained" / f"base-{digest(parts | {'seed': recipe.training.seed})}"
    if not folder.is_dir():
        with quiet():
            _training(lab.options.threads).assemble(plain).model.save_pretrained(str(folder), create_model_card=False)
    return str(folder)


def digest(settings: Any) -> str:
    """Name settings that JSON can hold, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]


def _train(recipe: Recipe, threads: int) -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with quiet():
        _training(threads).train(recipe, progress=False)


def _training(threads: int) -> Any:
    """Return `weft.training.run`, with torch kept to that many threads."""
    try:
        import torch

        from weft.training import run
    except ImportError as error:
        raise missing_extra(error.name or "torch", "train", "training models to compare") from error
    torch.set_num_threads(threads)
    return run


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what the trainer prints off stdout, where results go; its bars, reports and warnings are for --verbose."""
    from transformers.utils import logging as theirs

    before = theirs.get_verbosity()
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    said = sys.stderr if logger.isEnabledFor(logging.INFO) else io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            yield
        finally:
            theirs.set_verbosity(before)
            theirs.enable_progress_bar()


# -- the quick form ------------------------------------------------------------------------------------


def tiny_recipe(folder: Path, changes: Mapping[str, Any]) -> Recipe:
    """Return a recipe of some seconds, over a base and data written into `folder`."""
    from weft.training.recipes import build_recipe

    tables: dict[str, Any] = {
        "model": {
            "base": str(_tiny_base(folder / "base")),
            "dim": 64,
            "query_length": 32,
            "document_length": 160,
            "frozen_layers": 1,
            "dropout": 0.0,
        },
        "loss": {"alignment": "sum-of-max,z=query", "scale": 20.0},
        "training": {
            "output": "",
            "steps": TINY_STEPS,
            "batch_size": 8,
            "learning_rate": 1e-3,
            "max_document_length": 64,
            "save_every": 10_000,
            "log_every": 10,
        },
        "data": [{"path": str(_tiny_data(folder / "data"))}],
    }
    for key, value in changes.items():
        table, _, name = key.partition(".")
        tables[table][name] = value
    return build_recipe(tables)


def _tiny_data(folder: Path) -> Path:
    """Write the demo collection with every other query as its train split (the rest is `Lab.held_out`)."""
    if not (folder / "qrels" / "train.tsv").exists():
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for name in ("corpus.jsonl", "queries.jsonl"):
            (folder / name).write_bytes((DEMO / name).read_bytes())
        judged = Collection.read(DEMO).relevant()
        rows = [f"{query}\t{d}\t{grade}" for query in list(judged)[::2] for d, grade in judged[query].items()]
        (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


def _tiny_base(folder: Path) -> Path:
    """Write a BERT of two random layers, with a vocabulary of the demo collection's words."""
    if (folder / "model.safetensors").exists():
        return folder
    try:
        import torch
        from tokenizers import BertWordPieceTokenizer
        from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    except ImportError as error:
        raise missing_extra(error.name or "torch", "train", "training models to compare") from error
    folder.mkdir(parents=True, exist_ok=True)
    collection = Collection.read(DEMO)
    words = BertWordPieceTokenizer(lowercase=True)
    texts = [document.full_text for document in collection.documents]
    words.train_from_iterator([*texts, *collection.queries.values()], vocab_size=3000, show_progress=False)
    words = BertWordPieceTokenizer(words.get_vocab(), lowercase=True)  # with [CLS] and [SEP] around a text
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    PreTrainedTokenizerFast(tokenizer_object=words._tokenizer, **special).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=words.get_vocab_size(),
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=192,
        max_position_embeddings=256,
    )
    model = BertModel(config)
    # Random words far apart and little mixing: an untrained model that finds words again, so that there is something
    # to train.
    torch.nn.init.normal_(model.embeddings.word_embeddings.weight, std=1.0)
    with quiet():
        model.save_pretrained(folder)
    return folder
