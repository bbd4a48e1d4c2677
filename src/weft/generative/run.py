"""`train(recipe)`: everything between a checked recipe and a saved generative model.

A plain loop: cross-entropy, one optimiser, batches that are a function of the seed and the step. An interrupted run
goes on from its last checkpoint to the same losses.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from weft.errors import DataError
from weft.generative.checkpoints import chosen_device
from weft.generative.corpus import read_data, write_collection
from weft.generative.examples import Batches
from weft.generative.methods import Embed, Task, prepare
from weft.generative.model import GenerativeModel
from weft.generative.recipes import Recipe

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
MAY_CHANGE = ("steps", "epochs", "save_every", "log_every")
"""Keys of [training] that may differ when a run goes on."""


def train(
    recipe: Recipe,
    *,
    resume: bool = True,
    progress: bool | None = None,
    embed: Embed | None = None,
    device: str | None = None,
    prepare: Callable[..., Task] = prepare,
) -> Path:
    """Train a recipe's model and return the folder it is saved in, ``<output>/model``.

    Beside it are ``log.jsonl`` (a line every `log_every` steps), ``collection`` (the corpus and the held-out queries in
    BEIR's layout) and the last checkpoint.

    Parameters
    ----------
    recipe : Recipe
    resume : bool
        Go on from the checkpoint in the output folder, if there is one.
    progress : bool, optional
        Show a progress bar; by default in a terminal, and elsewhere a line every `log_every` steps.
    embed : callable, optional
        Document vectors for DSI's identifiers, where the recipe names an encoder.
    device : str, optional
        ``"cpu"``, ``"cuda"``, …; by default an accelerator, if there is one.
    prepare : callable
        Makes the model and its examples, with the arguments of `weft.generative.methods.prepare`.
    """
    output = Path(recipe.training.output)
    output.mkdir(parents=True, exist_ok=True)
    saved = _checkpoint(output, recipe) if resume else None
    torch.manual_seed(recipe.training.seed)
    corpus = read_data(recipe.data, recipe.training.seed)
    task = prepare(recipe, corpus, embed, output / "model" if saved is not None else None)
    task.model.to(chosen_device(device))
    write_collection(corpus, output / "collection")
    (output / "recipe.json").write_text(_as_text(recipe), encoding="utf-8")
    if saved is None:
        task.model.save(output / "model")
    loop = _Loop(recipe, task, output)
    if saved is not None:
        loop.restore(saved)
    loop.run(progress)
    task.model.eval()
    task.model.save(output / "model")
    return output / "model"


def check(recipe: Recipe, embed: Embed | None = None) -> list[str]:
    """Read the data, build the model and compute the loss of one batch; return lines that say what was found."""
    corpus = read_data(recipe.data, recipe.training.seed)
    torch.manual_seed(recipe.training.seed)
    task = prepare(recipe, corpus, embed, None)
    batches = _batches(recipe, task)
    with torch.no_grad():
        loss = float(_loss(task.model.eval(), batches[0]))
    parameters = sum(parameter.numel() for parameter in task.model.parameters())
    return [
        f"data      {len(corpus.documents):,} documents, {len(corpus.pairs):,} pairs, {len(corpus.heldout):,} held out",
        f"model     {parameters:,} parameters, decoder vocabulary {task.model.vocabulary:,}",
        f"examples  {batches.of_pairs} of queries and {batches.of_documents} of documents a batch; "
        f"{_steps(recipe, batches):,} steps",
        f"loss      {loss:.4f} (one batch, untrained)",
    ]


class _Loop:
    def __init__(self, recipe: Recipe, task: Task, output: Path) -> None:
        self.recipe, self.task, self.output = recipe, task, output
        self.batches = _batches(recipe, task)
        self.steps = _steps(recipe, self.batches)
        self.step = 0
        self.log: list[dict[str, float]] = []
        self.losses: list[float] = []  # since the last line of the log
        settings = recipe.training
        trained = [parameter for parameter in task.model.parameters() if parameter.requires_grad]
        tables = [task.model.t5.shared, task.model.table]
        embeddings = {id(table.weight) for table in tables if table is not None}
        groups = [
            {"params": [p for p in trained if id(p) not in embeddings], "times": 1.0},
            {"params": [p for p in trained if id(p) in embeddings], "times": settings.embedding_rate},
        ]
        self.autocast = torch.autocast(
            task.model.device.type, torch.bfloat16, enabled=settings.precision == "bf16", cache_enabled=False
        )
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay)

    def run(self, progress: bool | None) -> None:
        settings = self.recipe.training
        self.task.model.train()
        losses = self.losses
        began = time.monotonic()
        bar = tqdm(total=self.steps, initial=self.step, unit="step", disable=None if progress is None else not progress)
        with bar:
            while self.step < self.steps:
                if self.task.between is not None:
                    self.task.between(self.step)
                loss = self._one()
                self.step += 1
                losses.append(loss)
                bar.update()
                if self.step % settings.log_every == 0 or self.step == self.steps:
                    mean = sum(losses) / len(losses)
                    entry = {"step": self.step, "loss": mean, "learning_rate": self._rate(self.step - 1)}
                    entry["seconds"] = round(time.monotonic() - began, 2)
                    self._record(entry)
                    bar.set_postfix(loss=f"{mean:.3f}")
                    if progress is None and bar.disable:
                        print(f"step {self.step:,} of {self.steps:,}, loss {mean:.3f}", file=sys.stderr, flush=True)
                    losses.clear()
                if self.step % settings.save_every == 0 and self.step < self.steps:
                    self._save()
        self._save()

    def _one(self) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = group["times"] * self._rate(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast:
            loss = _loss(self.task.model, self.batches[self.step])
        if not torch.isfinite(loss):
            raise DataError(f"the loss is {loss.item()} at step {self.step + 1}: try a lower training.learning_rate")
        loss.backward()
        if self.recipe.training.clip:
            torch.nn.utils.clip_grad_norm_(self.task.model.parameters(), self.recipe.training.clip)
        self.optimizer.step()
        return loss.item()

    def _rate(self, step: int) -> float:
        settings = self.recipe.training
        rate = settings.learning_rate
        if step < settings.warmup:
            return rate * (step + 1) / settings.warmup
        if settings.scheduler == "linear":
            rate *= max(0.0, (self.steps - step) / max(1, self.steps - settings.warmup))
        return rate

    # -- log and checkpoints -----------------------------------------------------------------------

    def _record(self, entry: dict[str, float]) -> None:
        self.log.append(entry)
        with open(self.output / LOG, "a" if len(self.log) > 1 else "w", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _save(self) -> None:
        state = {
            "step": self.step,
            "model": self.task.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.random.get_rng_state(),
            "log": self.log,
            "losses": self.losses,
            "identifiers": None if self.task.identifiers is None else [list(row) for row in self.task.identifiers],
        }
        temporary = self.output / (CHECKPOINT + ".part")
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.output / CHECKPOINT)

    def restore(self, state: dict[str, Any]) -> None:
        model, table = self.task.model, state["model"].get("table.weight")
        if table is not None and model.table is not None and table.shape != model.table.weight.shape:
            frozen = not model.table.weight.requires_grad  # made again since (ASYNC), with other clusters
            model.set_table(table, frozen, state["model"]["token_of"].numpy())
        model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.random.set_rng_state(state["random"])
        self.step, self.log, self.losses = state["step"], state["log"], state["losses"]
        if state["identifiers"] is not None:
            self.task.set_identifiers(state["identifiers"])
        lines = "".join(json.dumps(entry) + "\n" for entry in self.log)
        (self.output / LOG).write_text(lines, encoding="utf-8")


def _batches(recipe: Recipe, task: Task) -> Batches:
    return Batches(task.examples, recipe.training.batch_size, recipe.examples.documents, recipe.training.seed)


def _steps(recipe: Recipe, batches: Batches) -> int:
    return recipe.training.steps or batches.steps(recipe.training.epochs)


def _loss(model: GenerativeModel, batch: Sequence[Any]) -> torch.Tensor:
    loss: torch.Tensor = model([example.input for example in batch], [example.target for example in batch])
    return loss


def _checkpoint(output: Path, recipe: Recipe) -> dict[str, Any] | None:
    path = output / CHECKPOINT
    if not path.exists():
        return None
    if _comparable((output / "recipe.json").read_text(encoding="utf-8")) != _comparable(_as_text(recipe)):
        raise DataError(f"{str(output)!r} holds a run of another recipe: choose another training.output, or --fresh")
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise DataError(
            f"{str(path)!r} cannot be read ({' '.join(str(error).split())[:200]}): --fresh starts over"
        ) from None
    return state


def _as_text(recipe: Recipe) -> str:
    return json.dumps(recipe.as_dict(), indent=1, ensure_ascii=False)


def _comparable(text: str) -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(text)
    tables["training"] = {key: value for key, value in tables["training"].items() if key not in (*MAY_CHANGE, "output")}
    return {**tables, "notes": ""}
