"""From a name or a path to a running model: the bundled one, a light folder, a checkpoint, the hub."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.encoders.backend import Backend
from weft.encoders.card import read_card_languages
from weft.encoders.hub import download
from weft.encoders.light import LightBackend, is_light_folder, read_light_folder
from weft.encoders.own_alignment import read_own_alignment
from weft.encoders.packages import find_package
from weft.encoders.query_towers import FULL, QueryTower, available, load_tower
from weft.encoders.settings import Settings
from weft.errors import CheckpointError, first_line, invalid, missing_extra

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BUNDLED = Path(__file__).parent.parent / "models" / "weft-small"
"""The model that comes with the package."""


def load(
    name_or_path: str | Path | None,
    *,
    backend: str,
    device: str | None,
    projection: Any,
    trust_remote_code: bool,
    revision: str | None,
    cache_folder: str | Path | None,
    local_files_only: bool,
) -> tuple[Settings, Tokenizer, Backend]:
    """Load a model for `Encoder.load`, whose parameters these are."""
    if name_or_path is None:
        if not is_light_folder(BUNDLED):
            raise CheckpointError(
                "this installation of weft comes without a model: name one, a folder or a checkpoint (--model)"
            )
        folder, name = BUNDLED, BUNDLED.name
    else:
        folder, name = locate(
            name_or_path,
            revision=revision,
            cache_folder=cache_folder,
            local_files_only=local_files_only,
            with_code=trust_remote_code,
        )
    if is_light_folder(folder):
        if backend == "torch":
            raise CheckpointError(f"{name} is a light model, without the weights that torch needs: load its checkpoint")
        for option, value in (("projection", projection), ("device", device)):
            if value is not None:
                raise invalid(option, "Encoder.load", "left out for a light model", value)
        return read_light_folder(folder)
    if backend == "light":
        raise CheckpointError(
            f"{name} is not a light model (no weft_encoder.json): weft export {name} FOLDER makes one"
        )
    try:
        from weft.encoders.importers import import_checkpoint
        from weft.encoders.torch_backend import TorchBackend, describe, plain_tokenizer
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] in (
            "torch",
            "sentence_transformers",
            "transformers",
        ):
            raise missing_extra("sentence-transformers", "torch", f"Loading the checkpoint {name}") from None
        raise
    model, layout = import_checkpoint(
        folder, name, device=device, projection=projection, trust_remote_code=trust_remote_code
    )
    # A path means nothing elsewhere: an exported model remembers only its name.
    source = Path(name).name if Path(name).exists() else name
    settings = describe(model, Path(name).name, {"source": source, "layout": layout})
    settings = dataclasses.replace(
        settings, alignment=read_own_alignment(folder), languages=read_card_languages(folder)
    )
    return settings, plain_tokenizer(model), TorchBackend(model, settings)


def tower_of(query: str, settings: Settings, tokenizer: Tokenizer, backend: Backend) -> QueryTower | None:
    """Load the query tower that lies beside a light model; none for ``"full"``."""
    if query == FULL:
        return None
    if not isinstance(backend, LightBackend):
        raise CheckpointError(f"{settings.name} is not a light model: only those have query towers (query={query!r})")
    model = backend.path
    return load_tower(query, model.parent, model, settings, tokenizer.get_vocab_size())


def locate(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    cache_folder: str | Path | None = None,
    local_files_only: bool = False,
    with_code: bool = False,
) -> tuple[Path, str]:
    """Return the folder of a model, and its name.

    Names are the bundled model's, those of models installed as packages, or the hub's (downloaded).
    """
    if not isinstance(name_or_path, (str, Path)):
        raise invalid("name_or_path", "Encoder.load", "a folder or the name of a model", name_or_path)
    text = str(name_or_path)
    try:
        folder = Path(text).expanduser()
        if folder.is_dir():
            return folder, text
        if folder.is_file():
            raise CheckpointError(f"{text} is a file; a model is a folder")
    except (OSError, RuntimeError, ValueError) as error:  # no such user, too long a name, a NUL
        raise CheckpointError(f"{text[:80]!r} cannot name a model: {first_line(error)}") from None
    if name_or_path == BUNDLED.name and is_light_folder(BUNDLED):
        return BUNDLED, text
    packaged = find_package(text) if isinstance(name_or_path, str) else None
    if packaged is not None:
        return packaged, text
    if isinstance(name_or_path, Path) or not _may_be_hub_name(text):
        raise CheckpointError(f"there is no folder {text}")
    return download(text, revision, cache_folder, local_files_only, with_code), text


def query_encoders(model: str) -> tuple[str, ...]:
    """Return what can encode queries of a model on this machine, without loading it: see `Encoder.load`."""
    if not model or model == BUNDLED.name:
        return available(BUNDLED)
    folder = Path(model).expanduser()
    return available(folder if folder.is_dir() else find_package(model) or folder)


def model_reference(model: str | None) -> str:
    """Return how to remember a model: a folder's full path, a name as it is, "" for the bundled one."""
    if not model:
        return ""
    folder = Path(model).expanduser()
    return os.path.abspath(folder) if folder.is_dir() else model


def _may_be_hub_name(text: str) -> bool:
    return bool(text) and not text.startswith((".", "/", "~", os.sep)) and text.count("/") <= 1 and "\\" not in text
