"""Checkpoints of other projects, one file a layout. Each becomes a sentence-transformers `MultiVectorEncoder`.

If sentence-transformers reads a layout correctly, it does the reading; the rest is built from its modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import MultiVectorEncoder

from weft.encoders.importers import plain, pylate, sentence_transformers, stanford, t5_colbert, xtr
from weft.encoders.importers.files import Options, quietly, read_json
from weft.errors import CheckpointError, WeftError, first_line, invalid

LAYOUTS = {
    "sentence-transformers": sentence_transformers,
    "pylate": pylate,
    "stanford": stanford,
    "t5-colbert": t5_colbert,
    "xtr": xtr,
    "plain": plain,
}
"""In the order in which they are tried; each has `matches(folder)` and `load(folder, options)`."""


def detect(folder: Path) -> str:
    """Return the name of a folder's layout."""
    for name, layout in LAYOUTS.items():
        if layout.matches(folder):
            return name
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is not a model: it has no config.json")
    kind = read_json(folder / "config.json").get("model_type")
    raise CheckpointError(f"{folder} is not in a layout that weft knows (its config.json has model_type {kind!r})")


def import_checkpoint(
    folder: Path, name: str, *, device: str | None = None, projection: Any = None, trust_remote_code: bool = False
) -> tuple[MultiVectorEncoder, str]:
    """Load a checkpoint; return the model and its layout. Errors name the checkpoint in one line."""
    layout = detect(folder)
    if projection is not None and layout != "plain":
        raise invalid(
            "projection", "Encoder.load", f"left out for a checkpoint of {layout}, which has its own", projection
        )
    options = Options(device, projection, trust_remote_code)
    try:
        with quietly():
            return LAYOUTS[layout].load(folder, options), layout
    except WeftError:
        raise
    except Exception as error:  # the libraries may raise anything for a broken checkpoint
        raise CheckpointError(f"{name} ({layout} layout) could not be loaded: {first_line(error)}") from error
