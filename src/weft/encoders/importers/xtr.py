"""google/xtr-base-en: a T5 encoder, and a projection in ``2_Dense`` that no ``modules.json`` mentions.

The published recipe: lower-cased text, no markers, no expansion, the end-of-sequence token kept, at most 512 tokens.
"""

from __future__ import annotations

from pathlib import Path

from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Transformer

from weft.encoders.importers.files import Options, check_whole, read_json, read_modules, read_weights
from weft.encoders.importers.plain import late_interaction
from weft.errors import CheckpointError

LENGTH = 512
_PROJECTION = "2_Dense"


def matches(folder: Path) -> bool:
    """Whether the folder has a projection that no ``modules.json`` mentions."""
    return (folder / "config.json").is_file() and not read_modules(folder) and (folder / _PROJECTION).is_dir()


def load(folder: Path, options: Options) -> MultiVectorEncoder:
    """Build the model from its two parts."""
    weights = read_weights(folder / _PROJECTION)
    config = read_json(folder / _PROJECTION / "config.json")
    activation = str(config.get("activation_function", "torch.nn.modules.linear.Identity"))
    if not activation.endswith(".Identity") or set(weights) != {"linear.weight"}:
        found = f"{', '.join(sorted(weights))}, {activation}"
        raise CheckpointError(f"{folder / _PROJECTION} must be linear without bias or activation; it has {found}")
    transformer = Transformer(
        str(folder),
        query_length=LENGTH,
        document_length=LENGTH,
        do_lower_case=True,
        model_kwargs={"trust_remote_code": options.trust_remote_code},
        processor_kwargs={"trust_remote_code": options.trust_remote_code, "model_max_length": LENGTH},
        config_kwargs={"trust_remote_code": options.trust_remote_code},
    )
    check_whole(transformer, folder)
    return late_interaction(transformer, weights["linear.weight"], options)
