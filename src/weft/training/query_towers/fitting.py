"""Fitting a query tower to a model's own vectors.

The loss of a token is 1 − cosine with the model's vector. That of a text is the Kullback-Leibler divergence between the
model's and the tower's softmax over the scores (sum of max) with the other texts of its group. Texts of one length make
up a group, so nothing is padded and no mask is needed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from weft.encoders import Encoder
from weft.errors import DataError
from weft.training.query_towers.recipes import TowerTraining
from weft.training.query_towers.teacher import PART, Taught, teach

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.pt"
SCALE = 20.0
"""How sharp the softmax over a group's scores is; scores are means over the query's tokens."""
GROUP = 512
"""Tokens of a group of texts, whose scores with each other are compared."""
_LOG = "log.jsonl"


def fit(student: nn.Module, encoder: Encoder, texts: Sequence[str], settings: TowerTraining) -> None:
    """Train the student on texts, from the last checkpoint of the output folder if there is one."""
    output = Path(settings.output)
    output.mkdir(parents=True, exist_ok=True)
    texts = texts[: settings.texts or None]
    parts = -(-len(texts) // PART)
    total = round(settings.passes * parts)
    decayed = {name for name, parameter in student.named_parameters() if parameter.ndim > 1 and "table" not in name}
    named = dict(student.named_parameters())
    groups = [
        {"params": [p for name, p in named.items() if name in decayed], "weight_decay": settings.weight_decay},
        {"params": [p for name, p in named.items() if name not in decayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
    done = _resume(output / CHECKPOINT, student, optimizer)
    taught = taught_folder(settings)
    log = open(output / _LOG, "a", encoding="utf-8")  # noqa: SIM115
    with log, ThreadPoolExecutor(settings.threads, "weft-tower", torch.set_num_threads, (1,)) as pool:
        for number in range(done, total):
            at = number % parts
            (part,) = teach(encoder, texts[at * PART : (at + 1) * PART], taught)
            chance = np.random.default_rng([settings.seed, number])
            steps = list(_steps(part, settings.tokens, chance))
            began, sums, clock = time.process_time(), np.zeros(3), time.time()
            for position, step in enumerate(steps):
                progress = (number + position / len(steps)) / total
                for group in optimizer.param_groups:
                    group["lr"] = settings.learning_rate * rate(progress, number * len(steps) + position, settings)
                sums += _step(student, optimizer, pool, part, step, settings)
            _keep(output / CHECKPOINT, student, optimizer, number + 1)
            token, text, salience = (sums / len(steps)).round(4)
            entry = {"part": number + 1, "of": total, "token": token, "text": text, "salience": salience}
            entry |= {"cpu": round(time.process_time() - began, 1), "seconds": round(time.time() - clock, 1)}
            log.write(json.dumps(entry) + "\n")
            log.flush()
            logger.info("%s", entry)
    student.eval()


def taught_folder(settings: TowerTraining) -> Path:
    """Return where the model's vectors are kept."""
    return Path(settings.taught or Path(settings.output) / "taught")


def rate(progress: float, step: int, settings: TowerTraining) -> float:
    """Return the share of the learning rate: it rises, stays, and falls to nothing over the last part.

    Examples
    --------
    >>> settings = TowerTraining(output="out", warmup=10, decay=0.5)
    >>> [rate(0.0, 4, settings), rate(0.4, 100, settings), rate(0.75, 200, settings)]
    [0.5, 1.0, 0.5]
    """
    return min(1.0, (step + 1) / max(settings.warmup, 1), max(1 - progress, 0.0) / settings.decay)


def losses(vectors: Tensor, scores: Tensor, target: Tensor, salience: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses of a group of texts: of its tokens, of its texts' scores, of its saliences (each a mean).

    Shapes: vectors and target (B, T, dim), scores and salience (B, T).
    """
    token = 1 - (vectors * target).sum(-1).mean()
    sal = F.mse_loss(scores, salience)
    if len(target) < 3:
        return token, torch.zeros(()), sal
    texts, _tokens, dim = target.shape
    documents = target.reshape(-1, dim).T  # every text of the group as a document
    with torch.no_grad():
        wanted = _sum_of_max(target, documents, texts)
    found = _sum_of_max(vectors, documents, texts)
    own = torch.eye(texts, dtype=torch.bool)
    wanted, found = (
        x.masked_fill(own, -torch.inf).mul(SCALE).log_softmax(-1).masked_fill(own, 0) for x in (wanted, found)
    )
    text = (wanted.exp().masked_fill(own, 0) * (wanted - found)).sum(-1).mean()
    return token, text, sal


def _sum_of_max(queries: Tensor, documents: Tensor, texts: int) -> Tensor:
    """Queries (B, T, dim), documents (dim, B·T) → scores (B, B), means over the query's tokens."""
    count, tokens, dim = queries.shape
    similarities = (queries.reshape(-1, dim) @ documents).view(count, tokens, texts, -1)
    return similarities.amax(-1).mean(1)


def _step(
    student: nn.Module,
    optimizer: Any,
    pool: Executor,
    part: Taught,
    step: list[np.ndarray[Any, Any]],
    settings: TowerTraining,
) -> np.ndarray[Any, Any]:
    """Take one step; return the means of the three losses over its tokens."""
    count = sum(group.size for group in step)

    def learn(group: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:  # rows (B, T) of the part's tokens
        share = group.size / count
        ids = torch.from_numpy(part.ids[group].astype(np.int64))
        target = F.normalize(torch.from_numpy(part.vectors[group].astype(np.float32)), dim=-1)
        salience = torch.from_numpy(part.scores[group].astype(np.float32))
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bf16", cache_enabled=False):
            vectors, scores = student(ids)
        token, text, sal = losses(vectors.float(), scores.float(), target, salience)
        (share * (token + settings.text_weight * text + settings.salience_weight * sal)).backward()
        return share * np.array([token.item(), text.item(), sal.item()])

    sums: np.ndarray[Any, Any] = sum(pool.map(learn, step), np.zeros(3))
    nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return sums


def groups_of(part: Taught, tokens: int, chance: np.random.Generator | None = None) -> list[Any]:
    """Return groups of texts of one length, at most about `tokens` tokens each, as rows (B, T) of positions."""
    lengths = np.diff(part.offsets)
    groups: list[Any] = []
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        same = same if chance is None else chance.permutation(same)
        pieces = np.array_split(same, -(-len(same) * length // tokens))
        groups += [part.offsets[piece][:, None] + np.arange(length) for piece in pieces]
    return groups


def _steps(part: Taught, tokens: int, chance: np.random.Generator) -> Iterator[list[Any]]:
    """Yield steps of about `tokens` tokens: groups in any order."""
    groups = groups_of(part, GROUP, chance)
    step: list[Any] = []
    for at in chance.permutation(len(groups)):
        step.append(groups[at])
        if sum(rows.size for rows in step) >= tokens:
            yield step
            step = []
    if step:
        yield step


def _keep(path: Path, student: nn.Module, optimizer: Any, done: int) -> None:
    part = path.with_suffix(".part")
    torch.save({"student": student.state_dict(), "optimizer": optimizer.state_dict(), "done": done}, part)
    part.replace(path)


def _resume(path: Path, student: nn.Module, optimizer: Any) -> int:
    if not path.exists():
        return 0
    held = torch.load(path, weights_only=True)
    try:
        student.load_state_dict(held["student"])
        optimizer.load_state_dict(held["optimizer"])
    except (RuntimeError, ValueError, KeyError):
        raise DataError(f"{str(path)!r} is of another recipe: begin anew (--fresh), or name another output") from None
    return int(held["done"])
