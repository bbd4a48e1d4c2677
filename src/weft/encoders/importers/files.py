"""Reading checkpoint files: JSON, weights without pickles, and a check that no weight is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import safe_open
from transformers.utils import logging as transformers_logging

from weft.errors import CheckpointError

_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")


@dataclass(frozen=True)
class Options:
    """The parameters of `Encoder.load` for a checkpoint."""

    device: str | None = None
    projection: Any = None
    trust_remote_code: bool = False


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return data


def read_modules(folder: Path) -> list[dict[str, Any]]:
    """Return ``modules.json``, empty where there is none."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        return [{"type": module["type"], **module} for module in modules]
    except (ValueError, OSError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} is not a list of modules: {error!r}") from None


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a folder's weights: safetensors where there are any."""
    for pattern in ("*.safetensors", "pytorch_model*.bin"):
        found = sorted(folder.glob(pattern))
        if found:
            return found
    raise CheckpointError(f"{folder} has no weights (model.safetensors or pytorch_model.bin)")


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a folder by name."""
    return {name: tensor for path in weight_files(folder) for name, tensor in _open(path, "cpu").items()}


def weight_names(folder: Path) -> set[str]:
    """Return the names of all tensors of a folder, without reading the tensors."""
    return {name for path in weight_files(folder) for name in _open(path, "meta")}


def _open(path: Path, device: str) -> dict[str, torch.Tensor]:
    try:
        if path.suffix != ".safetensors":
            return dict(torch.load(path, map_location=device, weights_only=True, mmap=device == "cpu"))
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            return {name: torch.empty(0) if device == "meta" else file.get_tensor(name) for name in names}
    except Exception as error:  # truncated, not weights, or a pickle that wants to run code
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} cannot be read as weights: {reason}") from None


def check_whole(transformer: Any, folder: Path) -> None:
    """Refuse a transformer with weights that the folder does not have: they would be random.

    A stored name may carry prefixes (``bert.``); tied weights are stored once; poolers are not used for token vectors.
    Without a vocabulary the tokenizer would silently be an empty one.
    """
    if not any((folder / name).is_file() for name in _VOCABULARIES):
        raise CheckpointError(f"{folder} is incomplete: it has no tokenizer (tokenizer.json)")
    endings: set[str] = set()
    for name in weight_names(folder):
        parts = (
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias").split(".")
        )
        endings.update(".".join(parts[start:]) for start in range(len(parts)))
    places: dict[int, list[str]] = {}
    for name, tensor in transformer.model.state_dict(keep_vars=True).items():
        places.setdefault(tensor.data_ptr(), []).append(name)
    missing = [
        names[0]
        for names in places.values()
        if not any(name in endings for name in names) and not any("pooler." in name for name in names)
    ]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{folder} is incomplete: the weights {missing[0]}{more} are missing")


@contextmanager
def translated(folder: Path, texts: Mapping[str, str]) -> Iterator[Path]:
    """Yield a folder with the same files, some small ones replaced or added: one layout written as another."""
    with TemporaryDirectory(prefix="weft-") as made:
        target = Path(made)
        for path in folder.iterdir():
            if path.name not in texts:
                (target / path.name).symlink_to(path.resolve(), target_is_directory=path.is_dir())
        for name, text in texts.items():
            (target / name).write_text(text, encoding="utf-8")
        yield target


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers' progress bars and loading reports off stderr; what matters in them is checked here."""
    settings: Any = transformers_logging  # without types
    verbosity, bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity_error()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        if bars:
            settings.enable_progress_bar()
