"""PyLate: a transformer and ``1_Dense``; markers, lengths, expansion and skip list in the top-level configuration.

sentence-transformers reads this layout, markers and masks included, but knows the projection's class by one of its two
names only.
"""

from __future__ import annotations

import json
from pathlib import Path

from sentence_transformers import MultiVectorEncoder

from weft.encoders.importers.files import Options, check_whole, read_json, read_modules, translated

_DENSE = "sentence_transformers.base.modules.dense.Dense"
_DENSE_NAMES = ("pylate.models.Dense", "pylate.models.Dense.Dense")
_MARKS = ("query_prefix", "document_prefix", "do_query_expansion", "attend_to_expansion_tokens", "skiplist_words")


def matches(folder: Path) -> bool:
    """Whether PyLate saved the folder: by its projection's class, its model type or its settings."""
    modules = read_modules(folder)
    if not modules:
        return False
    config = read_json(folder / "config_sentence_transformers.json")
    by_class = any(str(module["type"]).startswith("pylate.") for module in modules)
    return by_class or config.get("model_type") == "ColBERT" or any(mark in config for mark in _MARKS)


def load(folder: Path, options: Options) -> MultiVectorEncoder:
    """Load through sentence-transformers, the projection under the name that it knows."""
    modules = [
        {**module, "type": _DENSE if module["type"] in _DENSE_NAMES else module["type"]}
        for module in read_modules(folder)
    ]
    # Since version 3 PyLate marks its folders; older ones look like single-vector models.
    config = {**read_json(folder / "config_sentence_transformers.json"), "model_type": "ColBERT"}
    texts = {"modules.json": json.dumps(modules), "config_sentence_transformers.json": json.dumps(config)}
    with translated(folder, texts) as readable:
        model = MultiVectorEncoder(
            str(readable), device=options.device, trust_remote_code=options.trust_remote_code, local_files_only=True
        )
    check_whole(model[0], folder / modules[0].get("path", ""))
    return model
