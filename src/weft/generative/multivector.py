"""T5-ColBERT: the multi-vector model that generative retrieval is compared with (GR §6.2), on the same T5.

The encoder of a T5, a linear map to `dim` without bias, vectors of length 1; trained with cross-entropy over the batch
(eq. 2), no temperature. The alignment says which of the paper's models it is:

- ``sum-of-max``: MVDR(q→d), eq. 21, Z = 1;
- ``document-to-query:τ``: MVDR(q←d), each document token spreads a softmax over the query's tokens. The paper does not
say what it divides by; without a division long documents win. Here Z = ΣA / n, where ΣA is the document's length m and
n the query's, so that a score is at most n, as in the other direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from weft.alignment import Alignment
from weft.alignment.base import Pairs
from weft.alignment.scoring import relevance
from weft.encoders.own_alignment import write_own_alignment
from weft.errors import CheckpointError
from weft.generative.corpus import Corpus
from weft.generative.examples import EOS, Example, Texts
from weft.generative.methods import Task, base_model
from weft.generative.model import GenerativeModel
from weft.generative.recipes import Recipe
from weft.types import TokenVectors

METHOD = "multi-vector"
PROJECTION = "projection.safetensors"
Q_TO_D = "sum-of-max"
SENTINEL = "<extra_id_0>"
D_TO_Q = "document-to-query:0.1"
"""Cosines are at most 1: at τ = 1 every alignment of theirs is nearly even. T5's attention has no such limit."""


class MultiVectorModel(GenerativeModel):
    """A T5 of which only the encoder is used, with a projection.

    Parameters
    ----------
    t5, tokenizer
        As of `GenerativeModel`.
    settings : dict
        ``alignment`` and ``dim``, and what else is to be kept with the model.
    """

    def __init__(self, t5: Any, tokenizer: Any, *, settings: dict[str, Any] | None = None) -> None:
        super().__init__(t5, tokenizer, settings={"alignment": Q_TO_D, "dim": 128} | (settings or {}))
        self.settings["method"] = METHOD
        self.alignment: Alignment = Alignment.parse(self.settings["alignment"])
        self.projection = nn.Linear(self.dim, int(self.settings["dim"]), bias=False)

    @property
    def filler(self) -> int | None:
        """The token that fills queries up to ``query_length``, if they are filled."""
        return mask_token(self.tokenizer) if self.settings.get("fill_queries") else None

    def query_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of queries, filled up where the model was trained so."""
        length = int(self.settings.get("query_length", 64))
        return [filled_up(ids, length, self.filler) for ids in self.token_ids(texts, length)]

    def vectors(self, ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return token vectors of length 1, (B, N, dim), and the mask of real ones."""
        encoded = self.encode(ids)
        return nn.functional.normalize(self.projection(encoded.hidden), dim=-1), encoded.mask.bool()

    def encode_texts(self, ids: Sequence[Sequence[int]], batch_size: int = 64) -> TokenVectors:
        """Return the token vectors of many texts, with their token ids."""
        found = []
        with torch.no_grad():
            for start in range(0, len(ids), batch_size):
                values, mask = self.vectors(ids[start : start + batch_size])
                found += [row[real].float().cpu().numpy() for row, real in zip(values, mask, strict=True)]
        return TokenVectors.from_list(found, [list(row) for row in ids], dim=int(self.settings["dim"]))

    def scores(self, query: tuple[Tensor, Tensor], document: tuple[Tensor, Tensor]) -> Tensor:
        """Return rel of every query with every document, (B, N), differentiable; both as `vectors` returns them."""
        (Q, query_mask), (D, document_mask) = query, document
        S = torch.einsum("bnd,Nmd->bnNm", Q, D).transpose(1, 2)  # one product of all tokens with all
        found: Tensor = relevance(Pairs(S, query_mask, document_mask), self.alignment)
        if self.alignment.divides_by == "sum":
            found = found * query_mask.sum(1, keepdim=True)
        return found

    def forward(self, ids: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
        """Return the mean cross-entropy of each query's document among the batch's (eq. 2)."""
        scores = self.scores(self.vectors(ids), self.vectors(targets))
        # A document that answers two queries of the batch is a wrong answer to neither.
        places: dict[tuple[int, ...], int] = {}
        document = torch.tensor([places.setdefault(tuple(target), len(places)) for target in targets])
        again = (document[:, None] == document[None, :]) & ~torch.eye(len(targets), dtype=torch.bool)
        own = torch.arange(len(targets), device=scores.device)
        return nn.functional.cross_entropy(scores.masked_fill(again.to(scores.device), -torch.inf), own)

    def save(self, folder: str | Path) -> None:
        """Write the folder of a `GenerativeModel` with the projection beside it; `Encoder.load` reads it, too."""
        super().save(folder)
        save_file({"weight": self.projection.weight.detach().contiguous()}, Path(folder) / PROJECTION)
        write_own_alignment(folder, self.alignment)

    @classmethod
    def load(cls, folder: str | Path) -> MultiVectorModel:
        """Open a folder written by `save`."""
        made = super().load(folder)
        assert isinstance(made, MultiVectorModel)
        try:
            made.projection.load_state_dict(load_file(Path(folder) / PROJECTION))
        except Exception as error:
            raise CheckpointError(
                f"{str(Path(folder) / PROJECTION)!r} cannot be read: {' '.join(str(error).split())}"
            ) from None
        return made


def mask_token(tokenizer: Any) -> int:
    """Return the token that stands for something left out: a tokenizer's mask, or T5's first sentinel."""
    if tokenizer.mask_token_id is not None:
        return int(tokenizer.mask_token_id)
    found = tokenizer.get_vocab().get(SENTINEL)
    if found is None:
        raise CheckpointError(f"queries cannot be filled up: the tokenizer has no mask token and no {SENTINEL}")
    return int(found)


def filled_up(ids: Sequence[int], length: int, filler: int | None) -> list[int]:
    """Return token ids, filled up to `length` unless `filler` is None.

    Examples
    --------
    >>> filled_up([7, 1], 4, 9), filled_up([7, 1], 4, None)
    ([7, 1, 9, 9], [7, 1])
    """
    return [*ids] if filler is None else [*ids, *[filler] * (length - len(ids))]


class DocumentExamples(Texts):
    """Query → its document, cut to `length` tokens; part of a document → that document."""

    def __init__(self, corpus: Corpus, tokenizer: Any, recipe: Recipe, length: int, filler: int | None = None) -> None:
        super().__init__(corpus, tokenizer, recipe.examples, recipe.model.query_length)
        self._query_length, self._filler = recipe.model.query_length, filler
        self.pairs = len(corpus.pairs)
        self.length = length

    def of_pair(self, number: int, random: np.random.Generator) -> Example:  # noqa: ARG002
        return Example(self._query(self.queries[number]), self._document(self.corpus.pairs[number].document))

    def of_document(self, number: int, random: np.random.Generator) -> Example:
        part = self.part(number, self.settings.span, random)
        return Example(self._query([*part, EOS]), self._document(number))

    def _query(self, ids: list[int]) -> list[int]:
        return filled_up(ids, self._query_length, self._filler)

    def _document(self, number: int) -> list[int]:
        return [*self.tokens[number][: self.length - 1], EOS]


def prepare_multivector(
    alignment: str, dim: int = 128, length: int = 256, fill_queries: bool = False
) -> Callable[..., Task]:
    """Return the function that prepares a multi-vector model for `weft.generative.run.train`.

    Parameters
    ----------
    alignment : str
        `Q_TO_D`, `D_TO_Q` or any other that is differentiable.
    dim : int
        Of the vectors.
    length : int
        The maximum number of tokens of a document.
    fill_queries : bool
        Fill queries up with a mask token.
    """

    def prepare(recipe: Recipe, corpus: Corpus, embed: Any = None, folder: Path | None = None) -> Task:  # noqa: ARG001
        if folder is not None:
            model = MultiVectorModel.load(folder)
        else:
            base = base_model(recipe, corpus)
            length_of = {"query_length": recipe.model.query_length, "document_length": length}
            settings = {"alignment": alignment, "dim": dim, "fill_queries": fill_queries} | length_of
            model = MultiVectorModel(base.t5, base.tokenizer, settings=settings)
        return Task(model, DocumentExamples(corpus, model.tokenizer, recipe, length, model.filler))

    return prepare
