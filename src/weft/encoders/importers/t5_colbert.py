"""T5-ColBERT as ``weft generative train`` writes it: a T5, whose encoder is used, and a projection beside it.

Texts are read as in training: the folder's own tokenizer, cut to its lengths, the end token after each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Transformer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from weft.encoders.importers.files import Options, check_whole, read_json
from weft.encoders.importers.plain import late_interaction
from weft.errors import CheckpointError

SETTINGS = "weft_generative.json"
METHOD = "multi-vector"
_PROJECTION = "projection.safetensors"
_SENTINEL = "<extra_id_0>"
"""What fills up queries where there is no mask token."""


def matches(folder: Path) -> bool:
    """Whether the folder's settings name a multi-vector model."""
    return read_json(folder / SETTINGS).get("method") == METHOD


def load(folder: Path, options: Options) -> MultiVectorEncoder:
    """Build the model from encoder, tokenizer and projection."""
    settings = read_json(folder / SETTINGS)
    lengths = {name: int(settings.get(name, default)) for name, default in _LENGTHS.items()}
    transformer = Transformer(str(folder), max_seq_length=max(lengths.values()), **lengths)
    check_whole(transformer, folder)
    transformer.processor = _tokenizer(folder, max(lengths.values()))
    if settings.get("fill_queries"):
        token = transformer.tokenizer.mask_token or _SENTINEL
        length = lengths["query_length"]
        transformer.query_expansion = {"strategy": "fixed", "length": length, "token": token, "attend": True}
    return late_interaction(transformer, _projection(folder), options)


_LENGTHS = {"query_length": 64, "document_length": 256}


def _tokenizer(folder: Path, length: int) -> Any:
    # Read directly: AutoTokenizer would replace the folder's normalisation by T5's.
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(folder, model_max_length=length)
    end = tokenizer.eos_token
    if tokenizer("a")["input_ids"][-1:] != [tokenizer.eos_token_id]:
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, tokenizer.eos_token_id)]
        )
    return tokenizer


def _projection(folder: Path) -> Any:
    from safetensors.torch import load_file

    try:
        return load_file(folder / _PROJECTION)["weight"]
    except Exception as error:  # missing, truncated, or without the tensor
        raise CheckpointError(f"{folder / _PROJECTION} cannot be read: {' '.join(str(error).split())}") from None
