"""Two vectors for the text as a whole, among those of its tokens.

The first and the last token of a BERT-like encoder, [CLS] and [SEP], stand for no word. If the encoder was trained for
mean pooling (gte, MiniLM), their states say little, and the mean of all states says what the text is about. The mean
needs more dimensions than a token: this projection gives it twice as many, as two vectors in those two places. A
query's first half is most similar to the document's first half, so that the sum of max adds up to the similarity of the
two means.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from weft.encoders.saved_module import SavedModule

PARTS = 2
"""Vectors of a text as a whole: in place of its first and of its last token."""


class WholeTextProjection(SavedModule):
    """Projects token states, and in place of the first and the last token the normalised mean of all states.

    Parameters
    ----------
    in_features : int
        Width of the hidden states.
    out_features : int
        Dimensions of the vectors.

    Examples
    --------
    >>> projection = WholeTextProjection(4, 3)
    >>> mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
    >>> features = {"token_embeddings": torch.randn(2, 5, 4), "attention_mask": mask}
    >>> vectors = projection(dict(features))["token_embeddings"]
    >>> vectors.shape
    torch.Size([2, 5, 3])
    >>> means = torch.stack([features["token_embeddings"][0, :4].mean(0), features["token_embeddings"][1, :3].mean(0)])
    >>> bool(torch.allclose(vectors[1, [0, 2]], projection.of_texts(means)[1], atol=1e-5))
    True
    """

    config_keys: list[str] = ["in_features", "out_features"]  # noqa: RUF012

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.token = nn.Linear(in_features, out_features)
        self.text = nn.Linear(in_features, PARTS * out_features)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        states = features["token_embeddings"]
        real = features["attention_mask"].to(states.dtype)
        count = real.cumsum(1)
        # (texts, 1, width): with three axes the exported graph has the plain product that int8 leaves alone.
        mean = (states * real[..., None]).sum(1, keepdim=True) / count[:, -1:, None].clamp_min(1)
        first, last = self.of_texts(mean).unbind(2)
        is_first, is_last = ((count == place) & (real > 0) for place in (1, count[:, -1:]))
        vectors = torch.where(is_last[..., None], last, self.token(states))
        return features | {"token_embeddings": torch.where(is_first[..., None], first, vectors)}

    def of_texts(self, mean: Tensor) -> Tensor:
        """Return the two vectors of each text, (…, 2, out_features), for the means of their states (…, in_features)."""
        both: Tensor = self.text(nn.functional.normalize(mean, dim=-1))
        return both.reshape(*mean.shape[:-1], PARTS, self.out_features)

    def get_embedding_dimension(self) -> int:
        """Return the dimension of the vectors, as sentence-transformers asks for it."""
        return self.out_features
