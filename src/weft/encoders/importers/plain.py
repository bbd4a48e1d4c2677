"""Plain Hugging Face encoders (BERT, MPNet, T5 and mT5 encoders, ModernBERT, …) and single-vector models.

Their token vectors are used as they are, or through a projection given by the caller. The pooling of a single-vector
model, and the layers after it, are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from torch import nn

from weft.encoders.importers.files import Options, check_whole, read_json, read_modules
from weft.errors import CheckpointError, invalid


def matches(folder: Path) -> bool:
    """Whether there is a configuration that names a kind of model."""
    return "model_type" in read_json(_backbone(folder) / "config.json")


def load(folder: Path, options: Options) -> MultiVectorEncoder:
    """Build a model from the transformer and the given projection."""
    backbone = _backbone(folder)
    saved = read_json(backbone / "sentence_bert_config.json")
    code = {"trust_remote_code": options.trust_remote_code}
    processor = code | ({"model_max_length": saved["max_seq_length"]} if saved.get("max_seq_length") else {})
    transformer = Transformer(
        str(backbone),
        do_lower_case=bool(saved.get("do_lower_case", False)),
        model_kwargs=dict(code),
        processor_kwargs=processor,
        config_kwargs=dict(code),
    )
    check_whole(transformer, backbone)
    hidden = transformer.get_embedding_dimension()
    weight = None if options.projection is None else _projection(options.projection, hidden)
    return late_interaction(transformer, weight, options)


def late_interaction(transformer: Transformer, weight: torch.Tensor | None, options: Options) -> MultiVectorEncoder:
    """Join a transformer, a projection (dim, hidden) if any, the scoring mask and the normalisation."""
    modules: list[nn.Module] = [transformer]
    if weight is not None:
        dim, hidden = weight.shape
        if hidden != transformer.get_embedding_dimension():
            found = f"{tuple(weight.shape)} after hidden states of {transformer.get_embedding_dimension()}"
            raise CheckpointError(f"the projection does not fit the transformer: {found}")
        modules.append(
            Dense(
                in_features=hidden,
                out_features=dim,
                bias=False,
                activation_function=nn.Identity(),
                init_weight=weight.float(),
                module_input_name="token_embeddings",
            )
        )
    modules += [MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
    return MultiVectorEncoder(modules=modules, device=options.device)


def _backbone(folder: Path) -> Path:
    """Return the folder of the transformer: the top, unless ``modules.json`` names another."""
    modules = read_modules(folder)
    return folder / str(modules[0].get("path", "")) if modules else folder


def _projection(given: Any, hidden: int) -> torch.Tensor:
    if isinstance(given, (str, Path)):
        try:
            given = np.load(given, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{given} is not a NumPy array: {error}") from None
    array = given.detach().cpu().numpy() if hasattr(given, "detach") else np.asarray(given)
    if array.ndim != 2 or array.shape[1] != hidden or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        expected = f"a finite array of shape (dim, {hidden})"
        raise invalid("projection", "Encoder.load", expected, f"{array.dtype} of shape {array.shape}")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
