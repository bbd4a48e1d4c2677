"""sentence-transformers ≥ 6: ``model_type "MultiVectorEncoder"``, the modules listed in ``modules.json``."""

from __future__ import annotations

import json
from pathlib import Path

from sentence_transformers import MultiVectorEncoder

from weft.encoders.importers.files import Options, check_whole, read_json, read_modules, translated
from weft.encoders.salience import Salience
from weft.encoders.whole_text import WholeTextProjection

_OURS = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in (Salience, WholeTextProjection)}


def matches(folder: Path) -> bool:
    """Whether the folder is a saved `MultiVectorEncoder`."""
    if not read_modules(folder):
        return False
    return read_json(folder / "config_sentence_transformers.json").get("model_type") == "MultiVectorEncoder"


def load(folder: Path, options: Options) -> MultiVectorEncoder:
    """Load with sentence-transformers, except weft's own modules, which it takes for foreign code."""
    modules = read_modules(folder)
    others = [module for module in modules if module["type"] not in _OURS]
    with translated(folder, {"modules.json": json.dumps(others)}) as readable:
        model = MultiVectorEncoder(
            str(readable), device=options.device, trust_remote_code=options.trust_remote_code, local_files_only=True
        )
    check_whole(model[0], folder / str(modules[0].get("path", "")))
    if len(others) == len(modules):
        return model
    loaded = iter(model)
    whole = [
        _OURS[module["type"]].load(str(folder), subfolder=str(module["path"]))
        if module["type"] in _OURS
        else next(loaded)
        for module in modules
    ]
    prompts = {role: prompt for role, prompt in model.prompts.items() if prompt is not None}
    return MultiVectorEncoder(modules=whole, prompts=prompts, device=str(model.device))
