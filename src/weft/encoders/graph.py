"""The part of a model that becomes an ONNX graph: token ids in, vectors and salience scores of both heads out."""

from __future__ import annotations

from typing import Any

from sentence_transformers import MultiVectorEncoder
from torch import Tensor, nn

from weft.encoders.torch_backend import forward


class Graph(nn.Module):
    """``(input_ids, attention_mask) → (vectors (B, T, dim), salience (B, T, 2))``, the latter with saliences only.

    Takes the model over: attention is switched to the form that exports as plain matrix products.
    """

    def __init__(self, model: MultiVectorEncoder) -> None:
        super().__init__()
        self.model = model
        transformer: Any = getattr(model[0], "model", None)
        if hasattr(transformer, "set_attn_implementation"):
            transformer.set_attn_implementation("eager")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Run the modules once."""
        vectors, scores = forward(self.model, input_ids, attention_mask, None)
        return (vectors,) if scores is None else (vectors, scores)
