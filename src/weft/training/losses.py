"""One loss for every alignment: cross-entropy over in-batch and given negatives, on rel(Q, D) = 1/Z · Σ S∘A.

A batch is columns of texts: queries, their positives, and any number of columns of hard negatives. Every query
is scored with every document of the batch, under any alignment of `weft.alignment`: sum-of-max trains a ColBERT,
`xtr-in-batch:k` an XTR (eq. 2), top-k, top-p and DA an ALIGNER, with saliences where the model has heads for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from sentence_transformers.base.losses.gradcache import RandContext
from sentence_transformers.util import all_gather_padded, get_rank
from torch import Tensor, nn
from torch.nn import functional

from weft.alignment import Alignment, InBatchTokenRetrieval
from weft.alignment.base import Pairs
from weft.alignment.scoring import relevance
from weft.encoders.salience import SALIENCE, Salience
from weft.errors import invalid
from weft.training.in_batch import score_in_batch
from weft.training.token_distillation import maxima, unexplained, words


class Tokens(NamedTuple):
    """The token vectors of a batch of texts on torch."""

    values: Tensor
    """(texts, tokens, dim)"""
    mask: Tensor
    """(texts, tokens), bool"""
    ids: Tensor
    """(texts, tokens), vocabulary ids"""
    salience: Tensor | None
    """(texts, tokens), where the model has salience heads"""


class Taught(NamedTuple):
    """What the teacher says about a batch."""

    scores: Tensor
    """(B, N)"""
    maxima: Tensor | None
    """What each query token finds in each document, (B, n, N), where that is imitated too."""


class AlignmentLoss(nn.Module):
    """Cross-entropy of the positive among all documents of the batch, under one alignment.

    Parameters
    ----------
    model : MultiVectorEncoder
    alignment : Alignment or str
        What scores a pair in training, such as ``"xtr-in-batch:64"``.
    scale : float
        1 / temperature. Sums over query tokens (Z = 1) want about 1; means (Z = Σ A or n) want 20 to 60.
    teacher : MultiVectorEncoder, optional
        A frozen model with the same tokenizer; its scores of all pairs of the batch, under `teacher_alignment`, are
        imitated (KL divergence).
    teacher_alignment : Alignment or str
    teacher_scale : float
        1 / temperature of the teacher's scores, and of scores given as labels.
    distillation : float
        Weight of the imitation, between 0 and 1; the cross-entropy has the rest.
    token_distillation : float
        Weight of a further loss: imitating what each query token finds in each document with the teacher, as the share
        of its variance that is not explained (`weft.training.token_distillation`). Needs a teacher.
    mini_batch_size : int, optional
        Embed this many texts at a time and keep no activations between them (GradCache): batches of any size, for the
        price of a second forward pass. The gradients are the same.
    gather_across_devices : bool
        Score against the documents of all devices.

    Requirements
    ------------
    Columns (query, positive), (query, positive, negative…), and for distillation from given scores a column
    ``scores`` with one number for each document of the row. Texts must not repeat within a batch
    (``batch_sampler="no_duplicates"``): a repeated positive would be its own negative.
    """

    def __init__(
        self,
        model: Any,
        alignment: Alignment | str = "sum-of-max",
        *,
        scale: float = 1.0,
        teacher: Any = None,
        teacher_alignment: Alignment | str = "sum-of-max,z=query",
        teacher_scale: float = 1.0,
        distillation: float = 0.0,
        token_distillation: float = 0.0,
        mini_batch_size: int | None = None,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("scale", scale), ("teacher_scale", teacher_scale)):
            if not value > 0:
                raise invalid(name, "AlignmentLoss", "greater than 0", value)
        if not 0 <= distillation <= 1:
            raise invalid("distillation", "AlignmentLoss", "between 0 and 1", distillation)
        if not token_distillation >= 0:
            raise invalid("token_distillation", "AlignmentLoss", "at least 0", token_distillation)
        if token_distillation and teacher is None:
            raise invalid("teacher", "AlignmentLoss", "a model where token_distillation is above 0", teacher)
        if mini_batch_size is not None and mini_batch_size < 1:
            raise invalid("mini_batch_size", "AlignmentLoss", "at least 1, or None", mini_batch_size)
        self.model = model
        self.alignment = Alignment.parse(alignment)
        self.scale = scale
        self.teacher_alignment = Alignment.parse(teacher_alignment)
        self.teacher_scale = teacher_scale
        self.distillation = distillation
        self.token_distillation = token_distillation
        self.mini_batch_size = mini_batch_size
        self.gather_across_devices = gather_across_devices
        # Not a submodule: the trainer would move it, save it and put it into training mode.
        self._teacher: tuple[Any, ...] = (teacher.eval().requires_grad_(False),) if teacher is not None else ()

    @property
    def uses_gradient_cache(self) -> bool:
        """Tell the trainer that the backward pass runs in a hook."""
        return self.mini_batch_size is not None

    @property
    def _imitates(self) -> bool:
        return bool(self.distillation or self.token_distillation)

    def get_config_dict(self) -> dict[str, Any]:
        """Return what the model card shows."""
        return {
            "alignment": str(self.alignment),
            "scale": self.scale,
            "distillation": self.distillation,
            "token_distillation": self.token_distillation,
            "teacher_scale": self.teacher_scale,
            "mini_batch_size": self.mini_batch_size,
        }

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; `labels` are the teacher's scores, (queries, documents of a row), if given."""
        columns = [
            {**features, "task": features.get("task", "query" if i == 0 else "document")}
            for i, features in enumerate(sentence_features)
        ]
        if len(columns) < 2:
            raise invalid("data", "AlignmentLoss", "of at least two columns, query and positive", len(columns))
        taught = self._teach(columns) if self._teacher and self._imitates else None
        if self.mini_batch_size is None or not torch.is_grad_enabled():
            return self._loss([embed(self.model, column) for column in columns], labels, taught)
        return self._cached(columns, labels, taught)

    # -- from token vectors to a number ----------------------------------------------------------------

    def _loss(self, columns: Sequence[Tokens], labels: Tensor | None, taught: Taught | None) -> Tensor:
        queries, *documents = columns
        B, N = len(queries.values), len(documents)
        if self.gather_across_devices:
            documents = [_gather(column) for column in documents]
        merged = concatenate(documents)
        scores = self.scale * score_batch(queries, merged, self.alignment)  # (B, devices·B·N), column by column
        positives = torch.arange(B, device=scores.device) + (get_rank() * B if self.gather_across_devices else 0)
        loss = functional.cross_entropy(scores, positives)
        if self.distillation:
            loss = (1 - self.distillation) * loss
            if taught is not None:
                loss = loss + self.distillation * _kl(scores, self.teacher_scale * taught.scores)
            elif labels is not None:
                stride = len(merged.values) // N
                own = torch.stack([scores[torch.arange(B), positives + c * stride] for c in range(N)], dim=1)  # (B, N)
                if labels.shape != own.shape:
                    shape = tuple(labels.shape)
                    raise invalid("scores", "AlignmentLoss", f"one for each document, shape {tuple(own.shape)}", shape)
                loss = loss + self.distillation * _kl(own, self.teacher_scale * labels.to(own))
        if taught is not None and taught.maxima is not None:
            left = unexplained(maxima(queries, merged), taught.maxima, words(queries))
            loss = loss + self.token_distillation * left
        return loss + self._penalty(queries, "query") + self._penalty(merged, "document")

    def _penalty(self, side: Tokens, task: str) -> Any:
        if side.salience is None:
            return 0.0
        return salience_module(self.model).gate(task).penalty(side.salience, side.mask)

    @torch.no_grad()
    def _teach(self, columns: Sequence[dict[str, Any]]) -> Taught:
        queries, *documents = (embed(self._teacher[0], column) for column in columns)
        if self.gather_across_devices:
            documents = [_gather(column) for column in documents]
        merged = concatenate(documents)
        found = maxima(queries, merged) if self.token_distillation else None
        return Taught(score_batch(queries, merged, self.teacher_alignment), found)

    # -- GradCache -------------------------------------------------------------------------------------

    def _cached(self, columns: Sequence[dict[str, Any]], labels: Tensor | None, taught: Taught | None) -> Tensor:
        """Embed without activations, differentiate the loss at the embeddings, and embed again for the rest."""
        assert self.mini_batch_size is not None
        chunks: list[tuple[dict[str, Any], RandContext, Tokens]] = []
        sides = []
        for column in columns:
            pieces = []
            for begin in range(0, len(column["input_ids"]), self.mini_batch_size):
                chunk = _rows(column, slice(begin, begin + self.mini_batch_size))
                state = RandContext(*(value for value in chunk.values() if isinstance(value, Tensor)))
                with torch.no_grad():
                    tokens = embed(self.model, chunk)
                leaves = tokens._replace(
                    values=tokens.values.detach().requires_grad_(),
                    salience=None if tokens.salience is None else tokens.salience.detach().requires_grad_(),
                )
                chunks.append((chunk, state, leaves))
                pieces.append(leaves)
            sides.append(concatenate(pieces))
        loss = self._loss(sides, labels, taught)
        loss.backward()
        final = loss.detach().requires_grad_()
        final.register_hook(partial(self._replay, chunks))
        return final

    def _replay(self, chunks: Sequence[tuple[dict[str, Any], RandContext, Tokens]], gradient: Tensor) -> None:
        with torch.enable_grad():
            for chunk, state, leaves in chunks:
                with state:  # the same dropout as before
                    tokens = embed(self.model, chunk)
                carried = _dot(tokens.values, leaves.values.grad)
                if tokens.salience is not None and leaves.salience is not None:
                    carried = carried + _dot(tokens.salience, leaves.salience.grad)
                (carried * gradient).backward()


def score_batch(queries: Tokens, documents: Tokens, alignment: Alignment | str) -> Tensor:
    """Return rel(Q, D) of all B queries with all N documents, (B, N); differentiable."""
    alignment = Alignment.parse(alignment)
    if isinstance(alignment, InBatchTokenRetrieval):
        sides = [(side.values.float(), side.mask, side.salience) for side in (queries, documents)]
        return score_in_batch(sides[0], sides[1], alignment)
    # (B, 1, n, dim) @ (1, N, dim, m) as one product: (B·n, dim) @ (dim, N·m)
    B, n, _ = queries.values.shape
    N, m, _ = documents.values.shape
    flat = queries.values.float().reshape(B * n, -1) @ documents.values.float().reshape(N * m, -1).T
    S = flat.reshape(B, n, N, m).permute(0, 2, 1, 3)
    pairs = Pairs(S, queries.mask, documents.mask, queries.ids, documents.ids)
    scores: Tensor = relevance(pairs, alignment, queries.salience, documents.salience)
    return scores


def embed(model: Any, features: dict[str, Any]) -> Tokens:
    """Run the model on tokenised texts."""
    output = model(dict(features), task=features["task"])
    mask = output["attention_mask"].bool()
    return Tokens(output["token_embeddings"], mask, output["input_ids"], output.get(SALIENCE))


def salience_module(model: Any) -> Salience:
    """Return the salience heads of a model that has them."""
    found = [module for module in model.modules() if isinstance(module, Salience)]
    if not found:
        raise invalid("model", "salience_module", "a model with salience heads", type(model).__name__)
    return found[0]


def concatenate(parts: Sequence[Tokens]) -> Tokens:
    """Put batches of texts after each other, padded to one length."""
    m = max(part.values.shape[1] for part in parts)

    def joined(tensors: Iterable[Tensor]) -> Tensor:
        wide = [functional.pad(t, (0, 0) * (t.ndim - 2) + (0, m - t.shape[1])) for t in tensors]
        return torch.cat(wide)

    salience = None
    if parts[0].salience is not None:
        salience = joined(part.salience for part in parts if part.salience is not None)
    return Tokens(
        joined(p.values for p in parts), joined(p.mask for p in parts), joined(p.ids for p in parts), salience
    )


def _gather(tokens: Tokens) -> Tokens:
    values, mask = all_gather_padded(tokens.values, tokens.mask, with_grad=True)
    ids, _ = all_gather_padded(tokens.ids[..., None], tokens.mask, with_grad=False)
    salience = None
    if tokens.salience is not None:
        salience = all_gather_padded(tokens.salience[..., None], tokens.mask, with_grad=True)[0][..., 0]
    return Tokens(values, mask, ids[..., 0], salience)


def _kl(scores: Tensor, target: Tensor) -> Tensor:
    """KL(teacher || student) of the distributions over documents, averaged over queries."""
    logs = functional.log_softmax(target.detach().float(), dim=-1)
    return functional.kl_div(functional.log_softmax(scores, dim=-1), logs, reduction="batchmean", log_target=True)


def _rows(column: dict[str, Any], rows: slice) -> dict[str, Any]:
    size = len(column["input_ids"])
    tensors = {key: v for key, v in column.items() if isinstance(v, Tensor) and v.ndim and len(v) == size}
    return {**column, **{key: value[rows] for key, value in tensors.items()}}


def _dot(values: Tensor, gradient: Tensor | None) -> Tensor:
    if gradient is None:
        return values.sum() * 0
    return (values * gradient.to(values)).sum()
