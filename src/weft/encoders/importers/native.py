"""sentence-transformers ≥ 6: ``model_type "MultiVectorEncoder"``, the modules listed in ``modules.json``."""

from __future__ import annotations

from pathlib import Path

from sentence_transformers import MultiVectorEncoder

from weft.encoders.importers.files import Options, check_whole, read_json, read_modules


def matches(folder: Path) -> bool:
    """Whether the folder is a saved `MultiVectorEncoder`."""
    if not read_modules(folder):
        return False
    return read_json(folder / "config_sentence_transformers.json").get("model_type") == "MultiVectorEncoder"


def load(folder: Path, options: Options) -> MultiVectorEncoder:
    """Load as sentence-transformers does."""
    model = MultiVectorEncoder(
        str(folder), device=options.device, trust_remote_code=options.trust_remote_code, local_files_only=True
    )
    check_whole(model[0], folder / read_modules(folder)[0].get("path", ""))
    return model
