"""PyLate's model over weft's encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.encoders import Encoder
from weft.errors import invalid


class ColBERT:
    """An encoder with PyLate's `encode`.

    Parameters
    ----------
    model_name_or_path : str or Path, optional
        What `Encoder.load` reads, PyLate's own checkpoints included; by default the model that comes with weft.
    device, cache_folder, trust_remote_code, revision, local_files_only, query_length, document_length
        As for `Encoder.load`.
    """

    def __init__(
        self,
        model_name_or_path: str | Path | None = None,
        device: str | None = None,
        cache_folder: str | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        local_files_only: bool = False,
        query_length: int | None = None,
        document_length: int | None = None,
    ) -> None:
        self.encoder = Encoder.load(
            model_name_or_path,
            device=device,
            cache_folder=cache_folder,
            trust_remote_code=trust_remote_code,
            revision=revision,
            local_files_only=local_files_only,
            query_length=query_length,
            document_length=document_length,
        )

    def encode(
        self,
        sentences: str | Sequence[Any],
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = True,
        is_query: bool = True,
        pool_factor: int = 1,
    ) -> Any:
        """Return the vectors of a text, of a list of texts, or of lists of texts, in the same nesting.

        They are NumPy arrays of shape (tokens, dim), or torch tensors if `convert_to_tensor` (PyLate's
        ``convert_to_numpy=False`` too). `pool_factor` must be 1.
        """
        if pool_factor != 1:
            raise invalid("pool_factor", "encode", "1 (an index's beta_d prunes tokens)", pool_factor)
        if not normalize_embeddings:
            raise invalid("normalize_embeddings", "encode", "True", normalize_embeddings)
        flat = [sentences] if isinstance(sentences, str) else list(sentences)
        nested = [one for one in flat if not isinstance(one, str)]
        if nested and len(nested) != len(flat):
            raise invalid("sentences", "encode", "texts, or lists of texts", "both")
        texts = [text for group in flat for text in group] if nested else flat
        encode = self.encoder.encode_query if is_query else self.encoder.encode_document
        vectors: list[Any] = list(encode(texts, batch_size=batch_size, progress=show_progress_bar))
        if convert_to_tensor or not convert_to_numpy:
            import torch

            vectors = [torch.from_numpy(text) for text in vectors]
        if isinstance(sentences, str):
            return vectors[0]
        if not nested:
            return vectors
        rest = iter(vectors)
        return [[next(rest) for _ in group] for group in flat]
