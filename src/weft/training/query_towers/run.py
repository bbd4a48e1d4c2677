"""`train_tower(recipe)`: from a checked recipe to the two files of a query tower."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import torch

from weft.encoders import Encoder
from weft.encoders.light import LightBackend
from weft.encoders.query_towers import FAST, WORDS
from weft.errors import CheckpointError, DataError
from weft.training.query_towers.beginning import least_squares, regress
from weft.training.query_towers.fitting import CHECKPOINT, fit, taught_folder
from weft.training.query_towers.recipes import TowerRecipe
from weft.training.query_towers.students import Layered, Static
from weft.training.query_towers.teacher import PART, teach
from weft.training.query_towers.texts import make_texts
from weft.training.query_towers.weights import Weights
from weft.training.query_towers.writing import write_tower

logger = logging.getLogger(__name__)

RECIPE = "recipe.json"
REGRESSED = 4 * PART
"""A fast tower's heads are begun on this many texts."""
MAY_CHANGE = ("passes", "texts", "taught", "threads")
"""Keys of [training] that may change when a run is resumed."""


def train_tower(recipe: TowerRecipe, *, resume: bool = True) -> Path:
    """Train a query tower and return its JSON, ``<output>/query-<kind>.json``.

    An interrupted run goes on from its last checkpoint. Copied beside the model's files, the tower is there for
    ``Encoder.load(model, query=kind)``.
    """
    output = Path(recipe.training.output)
    encoder, texts = prepare(recipe)
    _begin(recipe, output, resume)
    student = begin(recipe, encoder, texts)
    fit(student, encoder, texts, recipe.training)
    name = recipe.tower.name or f"{encoder.name}-{recipe.tower.kind}"
    provenance = {"recipe": {key: value for key, value in recipe.as_dict()["tower"].items() if key != "model"}}
    return write_tower(student, encoder, output, name, provenance)


def check_tower(recipe: TowerRecipe) -> list[str]:
    """Do everything that comes before the first text is encoded; return a summary."""
    encoder, texts = prepare(recipe)
    taken = min(recipe.training.texts or len(texts), len(texts))
    return [
        f"data      {len(texts):,} texts, of which {taken:,} are learnt from {recipe.training.passes:g} times",
        f"model     {encoder.name}, {encoder.dim} dimensions, {encoder.fingerprint[:8]}",
        f"tower     {recipe.tower.kind}",
    ]


def prepare(recipe: TowerRecipe) -> tuple[Encoder, list[str]]:
    """Load the model, and make the texts."""
    encoder = Encoder.load(recipe.tower.model, backend="light")
    if encoder.settings.query.expansion is not None:
        raise CheckpointError(f"{encoder.name} fills queries up with a token, which query towers do not do")
    if encoder.settings.query.skip_ids or encoder.settings.query.keep_ids:
        logger.info("%s leaves tokens of queries out of scoring: the tower learns them all", encoder.name)
    return encoder, make_texts(recipe.data, encoder.tokenizer.get_vocab(), recipe.training.seed)


def begin(recipe: TowerRecipe, encoder: Encoder, texts: list[str]) -> Layered | Static:
    """Build the student as it is before the first step."""
    assert isinstance(encoder.backend, LightBackend)
    torch.manual_seed(recipe.training.seed)
    weights = Weights(encoder.backend.path)
    begun = (Path(recipe.training.output) / CHECKPOINT).exists()  # holds all of it
    taken, folder = texts[: recipe.training.texts or None], taught_folder(recipe.training)
    if recipe.tower.kind == FAST:
        student = Layered(weights, recipe.tower.chosen_layers, recipe.tower.intermediate, recipe.tower.heads)
        if not begun:
            regress(student, lambda: teach(encoder, taken[:REGRESSED], folder), recipe.training.precision)
        return student
    words = weights[WORDS]
    if begun:
        return Static(len(words), encoder.dim)
    return least_squares(lambda: teach(encoder, taken, folder), words, encoder.dim)


def _begin(recipe: TowerRecipe, output: Path, resume: bool) -> None:
    """Keep the recipe beside its checkpoint; refuse a checkpoint of another one."""
    path, checkpoint = output / RECIPE, output / CHECKPOINT
    now = json.loads(json.dumps(recipe.as_dict()))
    if checkpoint.exists() and not resume:
        checkpoint.unlink()
    if checkpoint.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
            for key in MAY_CHANGE:
                before["training"][key] = now["training"][key]
        except (OSError, ValueError, KeyError, TypeError):
            before = None
        if before != now:
            raise DataError(f"{str(output)!r} holds a checkpoint of another recipe: begin anew (--fresh)")
    output.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(now, indent=1, ensure_ascii=False), encoding="utf-8")
