"""A vector for the text as a whole, among those of its tokens.

The first token of a BERT-like encoder stands for no word. Where the encoder was trained to be averaged (gte, MiniLM),
its state says little, and the mean of all states says what the text is about: this module puts the mean in its place.
It helps where query and document hardly share words, as in a search for code.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.modules import Module


class WholeText(Module):
    """Replaces the state of the first token by the mean of all tokens' states; stands right after the transformer.

    Examples
    --------
    >>> states = torch.tensor([[[0.0], [2.0], [4.0], [9.0]]])  # one text of three tokens and a padding
    >>> features = {"token_embeddings": states, "attention_mask": torch.tensor([[1, 1, 1, 0]])}
    >>> WholeText()(features)["token_embeddings"][0, :, 0]
    tensor([2., 2., 4., 9.])
    """

    config_keys: list[str] = []  # noqa: RUF012

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        states = features["token_embeddings"]
        mask = features["attention_mask"].to(states.dtype)[..., None]
        mean = (states * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)
        return features | {"token_embeddings": torch.cat([mean, states[:, 1:]], dim=1)}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write an empty config.json: the module has no settings."""
        self.save_config(output_path)

    @classmethod
    def load(cls, *_: Any, **__: Any) -> WholeText:
        """Return the module."""
        return cls()
