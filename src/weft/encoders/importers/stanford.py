"""Stanford ColBERT: encoder and projection (``linear.weight``) in one file, settings in ``artifact.metadata``.

sentence-transformers reads this layout where the settings are flat; some checkpoints nest them under ``config``.
"""

from __future__ import annotations

import json
from pathlib import Path

from sentence_transformers import MultiVectorEncoder

from weft.encoders.importers.files import Options, check_whole, read_json, read_modules, translated, weight_names
from weft.errors import CheckpointError

_SETTINGS = "artifact.metadata"


def matches(folder: Path) -> bool:
    """Whether the folder is a checkpoint of Stanford's code."""
    if read_modules(folder):
        return False
    architectures = read_json(folder / "config.json").get("architectures") or []
    return "HF_ColBERT" in architectures or (folder / _SETTINGS).is_file()


def load(folder: Path, options: Options) -> MultiVectorEncoder:
    """Load through sentence-transformers, with flat settings."""
    if "linear.weight" not in weight_names(folder):
        raise CheckpointError(f"{folder} is incomplete: the projection linear.weight is missing")
    settings = read_json(folder / _SETTINGS)
    if isinstance(settings.get("config"), dict):
        settings = {**settings, **settings["config"]}
    similarity = settings.get("similarity", "cosine")
    if similarity != "cosine":
        raise CheckpointError(f"{folder} was trained for {similarity!r} similarity; weft has cosine only")
    config = {**read_json(folder / "config.json"), "architectures": ["HF_ColBERT"]}
    texts = {_SETTINGS: json.dumps(settings), "config.json": json.dumps(config)}
    with translated(folder, texts) as readable:
        model = MultiVectorEncoder(
            str(readable), device=options.device, trust_remote_code=options.trust_remote_code, local_files_only=True
        )
    check_whole(model[0], folder)
    return model
