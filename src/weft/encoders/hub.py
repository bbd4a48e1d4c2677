"""Models of the Hugging Face hub: only the files that a model needs, from the cache if there is no network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from weft.encoders.card import CARD_FILE
from weft.encoders.query_towers import TOWER_FILES
from weft.encoders.settings import MODEL_FILE
from weft.errors import CheckpointError, first_line

PATIENCE = 10
"""Seconds to wait for the hub's first answer."""
_SUFFIXES = (".json", ".txt", ".model", ".metadata", ".jinja", ".safetensors")


def download(
    name: str, revision: str | None, cache_folder: str | Path | None, local_files_only: bool, with_code: bool
) -> Path:
    """Return the folder of a model in the local cache, fetching what is missing."""
    from huggingface_hub import HfApi, snapshot_download

    options: dict[str, Any] = {"revision": revision, "cache_dir": cache_folder}
    reason = "which was not asked"
    if not local_files_only:
        try:
            # Unlike a listing, this is asked once: without a network the answer is known at once.
            found = HfApi().model_info(name, revision=revision, timeout=PATIENCE).siblings or []
            wanted = needed((file.rfilename for file in found), with_code)
            return Path(snapshot_download(name, allow_patterns=wanted, **options))
        except Exception as error:  # no network, or no such model: the cache decides which
            reason = first_line(error)[:200]
    try:
        return Path(snapshot_download(name, local_files_only=True, **options))
    except Exception:
        raise CheckpointError(
            f"{name} is neither a folder nor a model in the cache, and the hub did not provide it ({reason})"
        ) from None


def needed(files: Iterable[str], with_code: bool = False) -> list[str]:
    """Choose among a repository's files: configurations, tokenizers, and one form of the weights of each folder.

    Examples
    --------
    >>> needed(["config.json", "model.safetensors", "pytorch_model.bin", "2_Dense/pytorch_model.bin", "tf_model.h5"])
    ['2_Dense/pytorch_model.bin', 'config.json', 'model.safetensors']
    """
    paths = [PurePosixPath(file) for file in files]
    safe = {path.parent for path in paths if path.suffix == ".safetensors"}
    chosen = []
    for path in paths:
        if path.suffix == ".bin":
            wanted = path.match("*model*.bin") and path.parent not in safe
        elif path.suffix == ".onnx":  # graphs of other tools lie in folders of their own, a light model's at the top
            wanted = str(path) in (MODEL_FILE, *TOWER_FILES)
        elif path.suffix == ".npz":
            wanted = str(path) in TOWER_FILES
        else:
            wanted = path.suffix in _SUFFIXES or str(path) == CARD_FILE or (with_code and path.suffix == ".py")
        if wanted:
            chosen.append(str(path))
    return sorted(chosen)
