"""Where towers begin: least squares, for the table and the matrices of a static one, the heads of a fast one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from weft.training.query_towers.fitting import groups_of
from weft.training.query_towers.students import Layered, Static
from weft.training.query_towers.teacher import Taught

PRIOR = 4.0
"""A token's predicted vector counts as this many occurrences."""
RIDGE = 1e-3
RARE = 1e-4
"""Share of all tokens at which a token weighs half as much in a text's mean as one that is hardly ever seen."""

NO_WEIGHT = -20.0
ROUNDS = 4
"""How often a fast tower's head and its table are fitted to what the other leaves."""

Parts = Callable[[], Iterable[Taught]]


@torch.no_grad()
def least_squares(parts: Parts, words: NDArray[np.float32], dim: int) -> Static:
    """Return the static tower whose vectors are nearest to the taught ones, up to their norms.

    The table has each token's mean vector; a ridge regression from the model's embeddings `words` (V, width) predicts
    those of rare tokens. Then the neighbours' matrix is fitted to the rest, the table to what that leaves, and the
    matrix again.
    """
    student = Static(len(words), dim)
    nn.init.zeros_(student.neighbours.weight)
    nn.init.zeros_(student.neighbours.bias)
    counts = _fit_table(student, parts, words)
    student.weight.copy_(torch.from_numpy(-np.log1p(counts / counts.sum() / RARE)))
    for ids, _, _ in _groups(parts):  # the first and the last token are in every text and say nothing
        student.weight[ids[0, [0, -1]]] = NO_WEIGHT
        break
    for again in (True, False):
        _solve(student.neighbours, _inner(student, parts))
        if again:
            _fit_table(student, parts, words)
    _solve(student.text, _texts(student, parts))
    _fit_saliences(student, parts, counts)
    return student


@torch.no_grad()
def regress(student: Layered, parts: Parts, precision: str = "fp32") -> None:
    """Set a fast tower's heads and its table to the least squares solution, given its layers.

    One pass suffices: the head of tokens and the table are fitted in turn to what the other leaves, from sums of
    products alone.
    """
    width, dim, tokens = student.token.in_features, student.token.out_features, len(student.words)
    gram, right = torch.zeros(width + 1, width + 1), torch.zeros(width + 1, dim)
    states_of, vectors_of, counts = torch.zeros(tokens, width + 1), torch.zeros(tokens, dim), torch.zeros(tokens)
    texts: list[tuple[Tensor, Tensor]] = []
    for ids, target, _ in _groups(parts):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            states = student.states(student.words[ids] + student.positions[: ids.shape[1]])
        states = states.float()
        texts.append((student.of_text(states)[:, 0], target[:, [0, -1]].flatten(1)))
        inner, y = ids[:, 1:-1].flatten(), target[:, 1:-1].flatten(0, 1)
        x = torch.cat([states[:, 1:-1].flatten(0, 1), torch.ones(len(y), 1)], 1)
        gram += x.T @ x
        right += x.T @ y
        states_of.index_add_(0, inner, x)
        vectors_of.index_add_(0, inner, y)
        counts.index_add_(0, inner, torch.ones(len(y)))
    gram += RIDGE * gram.diagonal().mean() * torch.eye(width + 1)
    for _ in range(ROUNDS):
        solved = torch.linalg.solve(gram, right - states_of.T @ student.table)
        student.table.copy_((vectors_of - states_of @ solved) / (counts + PRIOR)[:, None])
    student.token.weight.copy_(solved[:-1].T)
    student.token.bias.copy_(solved[-1])
    _solve(student.text, texts)


def _fit_table(student: Static, parts: Parts, words: NDArray[np.float32]) -> NDArray[np.float32]:
    """Set each token's vector to the mean of what the neighbours' matrix leaves; return how often each occurs."""
    sums, counts = np.zeros(tuple(student.table.shape), np.float32), np.zeros(len(words), np.float32)
    for ids, target, _ in _groups(parts):
        left = target - student.neighbours(student.around(ids)[1])
        inner = ids[:, 1:-1].reshape(-1).numpy()
        np.add.at(sums, inner, left[:, 1:-1].flatten(0, 1).numpy())
        np.add.at(counts, inner, 1)
    features = np.concatenate([words, np.full((len(words), 1), np.abs(words).mean(), np.float32)], axis=1)
    seen = np.flatnonzero(counts)
    sure = np.sqrt(np.minimum(counts[seen], 50))[:, None]
    foretold = features @ _ridge(features[seen] * sure, sums[seen] / counts[seen, None] * sure, 1e-2)
    student.table.copy_(torch.from_numpy((sums + PRIOR * foretold) / (counts + PRIOR)[:, None]))
    return counts


def _fit_saliences(student: Static, parts: Parts, counts: NDArray[np.float32]) -> None:
    """Set each token's salience to its mean; the context adds nothing yet."""
    sums = np.zeros(len(counts))
    every = np.zeros(len(counts))
    for ids, _, salience in _groups(parts):
        np.add.at(sums, ids.numpy(), salience.numpy())
        np.add.at(every, ids.numpy(), 1)
    mean = sums.sum() / max(every.sum(), 1)
    student.salient.copy_(torch.from_numpy((sums + PRIOR * mean) / (every + PRIOR)))
    nn.init.zeros_(student.salience.weight)
    nn.init.zeros_(student.salience.bias)


def _inner(student: Static, parts: Parts) -> Iterator[tuple[Tensor, Tensor]]:
    for ids, target, _ in _groups(parts):
        own, around = student.around(ids)
        yield around[:, 1:-1].flatten(0, 1), (target - own)[:, 1:-1].flatten(0, 1)


def _texts(student: Static, parts: Parts) -> Iterator[tuple[Tensor, Tensor]]:
    for ids, target, _ in _groups(parts):
        own, around = student.around(ids)
        yield student.of_text(own + student.neighbours(around), around), target[:, [0, -1]].flatten(1)


def _solve(layer: nn.Linear, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Set a layer to the ridge regression from inputs (n, in) to outputs (n, out)."""
    inputs, outputs = layer.in_features, layer.out_features
    gram, right = torch.zeros(inputs + 1, inputs + 1), torch.zeros(inputs + 1, outputs)
    for x, y in pairs:
        x = torch.cat([x, torch.ones(len(x), 1)], 1)
        gram += x.T @ x
        right += x.T @ y
    gram += RIDGE * gram.diagonal().mean() * torch.eye(inputs + 1)
    solved = torch.linalg.solve(gram, right)
    layer.weight.copy_(solved[:-1].T)
    layer.bias.copy_(solved[-1])


def _ridge(x: NDArray[np.float32], y: NDArray[np.float32], ridge: float) -> NDArray[np.float32]:
    gram = x.T @ x
    gram[np.diag_indices_from(gram)] += ridge * np.trace(gram) / len(gram)
    solved: NDArray[np.float32] = np.linalg.solve(gram, x.T @ y)
    return solved


def _groups(parts: Parts) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield texts of one length: ids (B, T), vectors (B, T, dim), saliences (B, T)."""
    for part in parts():
        for rows in groups_of(part, 8192):
            yield (
                torch.from_numpy(part.ids[rows].astype(np.int64)),
                torch.from_numpy(part.vectors[rows].astype(np.float32)),
                torch.from_numpy(part.scores[rows].astype(np.float32)),
            )
