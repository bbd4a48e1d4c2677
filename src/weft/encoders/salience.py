"""ALIGNER's salience heads as a module of a sentence-transformers model (ALIGNER eq. 3).

The module stands between the transformer and the projection: it reads the hidden states and adds one number a
token, u_i = λ_i · ReLU(W·x_i + b), with one (W, b) for queries and one for documents. It is saved and loaded with the
model as any other module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from weft.alignment import Gate
from weft.encoders.saved_module import SavedModule

SALIENCE = "salience"
"""The key of the features that holds u, shape (texts, tokens)."""


class Salience(SavedModule):
    """Salience heads for queries and documents.

    Parameters
    ----------
    in_features : int
        Width of the hidden states.
    query_gate, document_gate : str
        ``"lp:0.5"`` (α, with ``,eps=0.002``), ``"hard:0.5"``, ``"relu"`` or ``"l1:0.01"``; see `weft.alignment.Gate`.
    weights : bool
        Whether an index of the model's vectors weighs scores by the saliences, or only prunes by them.

    Examples
    --------
    >>> head = Salience(4, "relu", "hard:0.5")
    >>> features = {"token_embeddings": torch.zeros(1, 2, 4), "attention_mask": torch.ones(1, 2)}
    >>> head(features, task="document")["salience"]  # fresh heads find every token salient; the gate keeps half
    tensor([[1., 0.]], grad_fn=<MulBackward0>)
    """

    config_keys: list[str] = ["in_features", "query_gate", "document_gate", "weights"]  # noqa: RUF012
    forward_kwargs: set[str] = {"task"}  # noqa: RUF012

    def __init__(
        self, in_features: int, query_gate: str = "lp:0.5", document_gate: str = "lp:0.4", weights: bool = True
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.weights = weights
        self.query_gate = str(Gate.parse(query_gate))
        self.document_gate = str(Gate.parse(document_gate))
        self.query = nn.Linear(in_features, 1)
        self.document = nn.Linear(in_features, 1)
        for head in (self.query, self.document):
            # W = 0, b = 1: training begins at the model without saliences.
            nn.init.zeros_(head.weight)
            nn.init.ones_(head.bias)

    def scores(self, hidden: Tensor, task: str | None) -> Tensor:
        """Return s = ReLU(W·x + b) before the gate, (texts, tokens), for hidden states (texts, tokens, in_features)."""
        head = self.query if task == "query" else self.document
        return torch.relu(head(hidden)[..., 0].float())

    def gate(self, task: str | None) -> Gate:
        """Return the gate of a side; every task but ``"query"`` is a document."""
        return Gate.parse(self.query_gate if task == "query" else self.document_gate)

    def forward(self, features: dict[str, Any], task: str | None = None, **_: Any) -> dict[str, Any]:
        s = self.scores(features["token_embeddings"], task)
        mask = features["attention_mask"].bool()
        s = torch.where(mask, s, torch.zeros_like(s))
        features[SALIENCE] = self.gate(task)(s, mask) * s
        return features
