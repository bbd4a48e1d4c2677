"""`train(recipe)`: everything between a checked recipe and a saved model, on sentence-transformers' trainer.

Multi-device training, mixed precision, logging and checkpoints are the trainer's own. An interrupted run goes on from
its last checkpoint when started again with the same recipe, to the same losses.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import MultiVectorEncoder, MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from tqdm import tqdm
from transformers import TrainerState, set_seed

from weft.alignment import InBatchTokenRetrieval
from weft.encoders import Encoder
from weft.encoders.own_alignment import write_own_alignment
from weft.encoders.torch_backend import prompt_of
from weft.errors import DataError, first_line
from weft.training.data import Row, Source, mining_corpus, read
from weft.training.fitted_projection import DOCUMENTS, QUERIES, Group
from weft.training.frozen import check_rememberable, remember
from weft.training.in_batch import memory
from weft.training.losses import AlignmentLoss
from weft.training.mining import choose, mine_bm25, mine_index
from weft.training.model import build_model, build_teacher
from weft.training.recipes import Recipe
from weft.training.resuming import TRAINER_STATE, begin, refuse_foreign, steps_of

logger = logging.getLogger(__name__)

MINING_DEPTH = 30
"""A miner looks at this many passages more than asked for, so that known relevant ones can be left out."""


def train(recipe: Recipe, *, resume: bool = True, progress: bool = True) -> Path:
    """Train a recipe's model and return the folder it is saved in, ``<output>/model``.

    Parameters
    ----------
    recipe : Recipe
    resume : bool
        Go on from the last checkpoint in the output folder, if there is one.
    progress : bool
        Show a progress bar.
    """
    output = Path(recipe.training.output)
    _arguments(recipe, {}, progress)  # what the trainer refuses is refused before the long work begins
    if resume:
        refuse_foreign(recipe)
    run = assemble(recipe)
    checkpoint = begin(recipe, resume)
    with ExitStack() as stack:
        if recipe.training.remember_frozen:
            modules = [transformer.auto_model for transformer in run.transformers]
            identity = base_identity(modules[0])
            folder = recipe.training.remember_frozen
            stack.enter_context(remember(modules, recipe.model.frozen_layers, folder, identity))
        datasets = prepare(run.sources, recipe, run.model, progress=progress)
        for transformer in run.transformers:
            transformer.document_length = recipe.training.max_document_length or recipe.model.document_length
        run.model.model_card_data.local_files_only = True  # its author would ask the hub for a model of the base's name
        trainer = MultiVectorEncoderTrainer(
            model=run.model,
            args=_arguments(recipe, datasets, progress, run.model),
            train_dataset=datasets,
            loss=run.loss,
        )
        start = {}
        if recipe.training.interpolation < 1:
            start = {name: p.detach().clone() for name, p in run.model.named_parameters() if p.requires_grad}
        if checkpoint is not None and steps_of(checkpoint) == recipe.training.steps:  # the trainer would add a step
            trainer._load_from_checkpoint(checkpoint)
            trainer.state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE))
        elif recipe.training.steps:
            trainer.train(resume_from_checkpoint=checkpoint)
    interpolate(run.model, start, recipe.training.interpolation)
    _transformer(run.model).document_length = recipe.model.document_length
    if trainer.is_world_process_zero():
        with open(output / "log.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in trainer.state.log_history)
        run.model.save_pretrained(str(output / "model"))
        write_own_alignment(output / "model", recipe.loss.alignment, recipe.model.search)
    return output / "model"


@torch.no_grad()
def interpolate(model: nn.Module, start: Mapping[str, Tensor], share: float) -> None:
    """Set weights to start + share · (trained − start), the space between two models that are both good (WiSE-FT).

    Examples
    --------
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 5.0)
    >>> interpolate(model, {"weight": torch.tensor([[1.0]])}, 0.25)
    >>> model.weight.item()
    2.0
    """
    for name, parameter in model.named_parameters():
        if name in start:
            parameter.copy_(torch.lerp(start[name].to(parameter.device), parameter, share))


@dataclass(frozen=True)
class Run:
    """What a recipe names, read and built."""

    sources: list[tuple[Source, list[Row], dict[str, str]]]
    model: MultiVectorEncoder
    transformers: list[Transformer]
    """The model's, and the teacher's if it is the untrained base, whose frozen layers are the model's own."""
    loss: AlignmentLoss


def assemble(recipe: Recipe) -> Run:
    """Read the data and build model, teacher and loss."""
    set_seed(recipe.training.seed)  # a random projection is the same in every run, and when a run goes on
    sources = [(source, *read(source, recipe.training.seed)) for source in recipe.data]
    for source, rows, corpus in sources:
        if source.negatives_from in ("bm25", "index") and not corpus:
            raise DataError(f"{source.label}: negatives can only be mined where there is a corpus")
        if source.negatives_from == "given" and not any(row.negatives for row in rows):
            raise DataError(f"{source.label}: negatives are to be given in the data, but no row has any")
        if recipe.loss.distillation and not recipe.loss.teacher:
            needed = 1 + source.negatives
            if any(len(row.scores) != needed for row in rows):
                scores = "one score" if needed == 1 else f"{needed} scores"
                raise DataError(f"{source.label}: distillation without loss.teacher needs {scores} in every row")
    listed = [rows for _, rows, _ in sources]
    seed = recipe.training.seed
    groups = [_group(rows, seed) for rows in listed] if recipe.model.projection == "fitted" else []
    model = build_model(recipe.model, _sample_texts(listed, seed), groups)
    transformers = [_transformer(model)]
    teacher = None
    if recipe.loss.teacher:
        teacher = build_teacher(recipe.model, recipe.loss.teacher)
        if teacher.tokenizer.get_vocab() != model.tokenizer.get_vocab():
            raise DataError(f"the teacher {recipe.loss.teacher!r} has another vocabulary than {recipe.model.base!r}")
        if recipe.loss.teacher == "base":
            transformers.append(_transformer(teacher))
    if recipe.training.remember_frozen:
        for transformer in transformers:
            check_rememberable(transformer.auto_model)
    loss = AlignmentLoss(
        model,
        recipe.loss.alignment,
        scale=recipe.loss.scale,
        teacher=teacher,
        teacher_alignment=recipe.loss.teacher_alignment,
        teacher_scale=recipe.loss.teacher_scale,
        distillation=recipe.loss.distillation,
        token_distillation=recipe.loss.token_distillation,
        mini_batch_size=recipe.loss.mini_batch_size,
        gather_across_devices=recipe.training.gather_across_devices,
    )
    return Run(sources, model, transformers, loss)


def check(recipe: Recipe) -> list[str]:
    """Do everything that comes before the first step, and compute the loss of one small batch; return a summary."""
    _arguments(recipe, {}, progress=False)
    refuse_foreign(recipe)
    run = assemble(recipe)
    summary, first = [], []
    for source, rows, corpus in run.sources:
        first.append(_first_loss(run, rows, recipe.training.seed))
        of = f", of {len(corpus):,} documents" if corpus else ""
        mined = f", {source.negatives} negatives each ({source.negatives_from})" if source.negatives else ""
        summary.append(f"data      {source.label}: {len(rows):,} rows{of}{mined}")
    trained = sum(p.numel() for p in run.model.parameters() if p.requires_grad)
    parts = " → ".join(type(module).__name__ for module in run.model)
    summary.append(f"model     {parts}; {trained / 1e6:.1f} M parameters to train")
    before = ", ".join(f"{loss:.3f}" for loss in first)
    summary.append(f"loss      {run.loss.alignment}, {before} on two rows of each before training")
    if isinstance(run.loss.alignment, InBatchTokenRetrieval):
        summary.append(_memory(recipe, run.loss.alignment.k_train))
    settings = recipe.training
    seen = settings.steps * settings.batch_size * settings.gradient_accumulation
    total = sum(len(rows) * source.repeat for source, rows, _ in run.sources)
    summary.append(
        f"training  {settings.steps:,} steps of {settings.batch_size}, {seen / total:.1f} times through the data"
    )
    return summary


def _memory(recipe: Recipe, k: int) -> str:
    """Say how much memory the scores of a whole batch take when tokens are retrieved in it."""
    queries, n = recipe.training.batch_size, recipe.model.query_length
    documents = queries * (1 + max(source.negatives for source in recipe.data))
    m = recipe.training.max_document_length or recipe.model.document_length
    needed = memory(queries, n, documents, m, k, recipe.model.dim)
    return f"memory    {needed / 2**30:.2f} GiB for the scores of {queries} queries with {documents} documents"


def _first_loss(run: Run, rows: list[Row], seed: int) -> float:
    few = columns(rows[:2] * 2, 0, seed)
    features = [
        {**run.model.preprocess(few[name][:2], task=task), "task": task}
        for name, task in (("query", "query"), ("positive", "document"))
    ]
    labels = torch.tensor([row.scores[:1] for row in (rows[:2] * 2)[:2]]) if "scores" in few else None
    with torch.no_grad():
        return run.loss(features, labels).item()


def prepare(
    sources: Sequence[tuple[Source, list[Row], dict[str, str]]],
    recipe: Recipe,
    model: MultiVectorEncoder,
    *,
    progress: bool = True,
) -> dict[str, Dataset]:
    """Mine negatives where the recipe says so, and return one dataset of columns for each source."""
    made: dict[str, Dataset] = {}
    for source, rows, corpus in tqdm(sources, desc="mining", disable=None if progress else True, leave=False):
        if source.negatives and source.negatives_from in ("bm25", "index"):
            depth = source.negatives + source.skip_top + MINING_DEPTH
            corpus = mining_corpus(source, rows, corpus, recipe.training.seed)
            if source.negatives_from == "bm25":
                found = mine_bm25([row.query for row in rows], corpus, depth)
            else:
                found = mine_index([row.query for row in rows], corpus, depth, _encoder(model))
            choose(rows, found, corpus, source.negatives, source.skip_top)
        name = source.label
        while name in made:
            name += "+"
        made[name] = Dataset.from_dict(columns(rows * source.repeat, source.negatives, recipe.training.seed))
        logger.info("%s: %d rows, %d negatives each", name, len(made[name]), source.negatives)
    return made


def columns(rows: Sequence[Row], negatives: int, seed: int) -> dict[str, list[Any]]:
    """Lay rows out as columns; a row with too few negatives gets other rows' positives.

    Examples
    --------
    >>> columns([Row("q", "p", ["n"]), Row("r", "o")], 1, seed=0)
    {'query': ['q', 'r'], 'positive': ['p', 'o'], 'negative_1': ['n', 'p']}
    """
    chance = random.Random(seed)
    filled: list[list[str]] = []
    for row in rows:
        own = row.negatives[:negatives]
        tries = 0
        while len(own) < negatives and tries < 100:
            other, tries = chance.choice(rows), tries + 1
            relevant = other.query == row.query or (other.positive_id and other.positive_id in row.known)
            if not relevant and other.positive != row.positive and other.positive not in own:
                own = [*own, other.positive]
        if len(own) < negatives:
            raise DataError(f"too few different texts for {negatives} negatives a query")
        filled.append(own)
    made: dict[str, list[Any]] = {"query": [row.query for row in rows], "positive": [row.positive for row in rows]}
    made |= {f"negative_{i + 1}": [own[i] for own in filled] for i in range(negatives)}
    if rows and all(len(row.scores) == 1 + negatives for row in rows):
        made["scores"] = [row.scores for row in rows]
    return made


def _arguments(
    recipe: Recipe, datasets: dict[str, Dataset], progress: bool, model: MultiVectorEncoder | None = None
) -> MultiVectorEncoderTrainingArguments:
    settings = recipe.training
    rates = {}
    if settings.head_learning_rate is not None:
        # Dense's, or WholeTextProjection's, which a base may bring without the recipe's asking for it.
        projection = r"\.linear\.weight$|(^|\.)\d+\.(token|text)\.(weight|bias)$"
        heads = ["" if recipe.model.projection == "none" else projection]
        heads += [r"(^|\.)\d+\.(query|document)\."] if recipe.model.query_gate else []
        rates = {head: settings.head_learning_rate for head in heads if head}
    prompts: dict[str, Any] = {}
    sides = {task: prompt_of(model, task) for task in ("query", "document")} if model is not None else {}
    if any(sides.values()):  # the recipe's, or the markers of a base that brings some
        names = {column for dataset in datasets.values() for column in dataset.column_names} - {"scores"}
        prompts = {"prompts": {name: sides["query" if name == "query" else "document"] for name in names}}
    try:
        return MultiVectorEncoderTrainingArguments(
            output_dir=str(Path(settings.output) / "checkpoints"),
            max_steps=settings.steps,
            per_device_train_batch_size=settings.batch_size,
            gradient_accumulation_steps=settings.gradient_accumulation,
            learning_rate=settings.learning_rate,
            learning_rate_mapping=rates,
            warmup_steps=round(settings.warmup * settings.steps),
            weight_decay=settings.weight_decay,
            lr_scheduler_type=settings.scheduler,
            optim=settings.optimizer,
            use_cpu=not torch.accelerator.is_available(),  # else the trainer refuses bf16 on a machine without a GPU
            bf16=settings.precision == "bf16",
            fp16=settings.precision == "fp16",
            seed=settings.seed,
            data_seed=settings.seed,
            save_steps=settings.save_every,
            save_total_limit=2,
            logging_steps=settings.log_every,
            batch_sampler="no_duplicates",
            multi_dataset_batch_sampler="proportional",
            disable_tqdm=not progress,
            report_to=[],
            **prompts,
        )
    except ValueError as error:  # an optimizer or a schedule that the trainer does not know
        raise DataError(f"the recipe's [training] is refused: {first_line(error)}") from None


def _encoder(model: MultiVectorEncoder) -> Encoder:
    with tempfile.TemporaryDirectory(prefix="weft-model-") as folder:
        model.save_pretrained(folder, create_model_card=False)
        return Encoder.load(folder)


def _transformer(model: MultiVectorEncoder) -> Transformer:
    found: Any = model[0]
    assert isinstance(found, Transformer)
    return found


def base_identity(module: Any) -> str:
    """Name the weights of a base by the beginning of each tensor. The pooler is unused and may be random."""
    digest = hashlib.sha256()
    for name, parameter in module.named_parameters():
        if name.startswith("pooler"):
            continue
        digest.update(name.encode())
        digest.update(parameter.detach().float().flatten()[:64].cpu().numpy().tobytes())
    return digest.hexdigest()


def _group(rows: Sequence[Row], seed: int) -> Group:
    """Return texts of one collection to fit a projection to, each once."""
    chance = random.Random(seed)
    queries, documents = (sorted({getattr(row, side) for row in rows}) for side in ("query", "positive"))
    return Group(
        chance.sample(queries, min(QUERIES, len(queries))), chance.sample(documents, min(DOCUMENTS, len(documents)))
    )


def _sample_texts(rows: Sequence[Sequence[Row]], seed: int) -> list[str]:
    """Return texts for a PCA: queries too, whose mean states lie elsewhere than those of documents."""
    texts = [text for source in rows for row in source[:1000] for text in (row.query, row.positive)]
    random.Random(seed).shuffle(texts)
    return texts
