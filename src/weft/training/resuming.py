"""Resuming from checkpoints: which recipe they belong to, how far they got, and when they are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from transformers.trainer_utils import get_last_checkpoint

from weft.errors import DataError
from weft.training.recipes import Recipe

RECIPE = "recipe.json"
"""The recipe, kept beside its checkpoints."""

TRAINER_STATE = "trainer_state.json"
"""The file in a checkpoint that says how far it got."""

MAY_CHANGE = ("steps", "interpolation", "log_every", "save_every", "remember_frozen")
"""Keys of [training] that may change when a run is resumed."""


def steps_of(checkpoint: str | Path) -> int:
    """Return the number of steps before a checkpoint."""
    steps: int = json.loads((Path(checkpoint) / TRAINER_STATE).read_text(encoding="utf-8"))["global_step"]
    return steps


def last_checkpoint(output: Path) -> str | None:
    """Return the folder of the last checkpoint of a run, if there is one."""
    folder = output / "checkpoints"
    return get_last_checkpoint(str(folder)) if folder.is_dir() else None


def refuse_foreign(recipe: Recipe) -> None:
    """Refuse to go on from checkpoints of another recipe, or with more steps than this one wants."""
    output = Path(recipe.training.output)
    last = last_checkpoint(output)
    if last is None:
        return
    instead = "start over (--fresh), or name another training.output"
    if steps_of(last) > recipe.training.steps:
        raise DataError(f"{str(output)!r} holds a checkpoint of {steps_of(last)} steps already: {instead}")
    try:
        before = json.loads((output / RECIPE).read_text(encoding="utf-8"))
        now = json.loads(json.dumps(recipe.as_dict()))
        for key in MAY_CHANGE:
            before["training"][key] = now["training"][key]
        same = before == now
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:  # its losses would go on as if they were this one's
        raise DataError(f"{str(output)!r} holds checkpoints of another recipe: {instead}")


def begin(recipe: Recipe, resume: bool) -> str | None:
    """Keep the recipe beside its checkpoints, and return the last of them, to go on from."""
    output = Path(recipe.training.output)
    if not resume and (output / "checkpoints").exists():
        shutil.rmtree(output / "checkpoints")
    output.mkdir(parents=True, exist_ok=True)
    part = output / f"{RECIPE}.part"  # whoever reads sees a whole file
    part.write_text(json.dumps(recipe.as_dict(), indent=1, ensure_ascii=False), encoding="utf-8")
    part.replace(output / RECIPE)
    return last_checkpoint(output)
