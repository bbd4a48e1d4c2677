"""Tiny random checkpoints, written file by file in the layouts of other projects, and what they must compute.

`Answer` is an independent forward pass: plain transformers and torch, no weft and no sentence-transformers. It cuts
and marks texts as the authors' own code does (markers inserted as ids, padding turned to [MASK]).
"""

from __future__ import annotations

import json
import string
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    MT5Config,
    MT5EncoderModel,
    T5Config,
    T5EncoderModel,
)

from encoders.tokenizers_of_tests import byte_level, unigram, wordpiece

HIDDEN, DIM = 16, 8
SHAPE = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
T5_SHAPE = {"d_model": HIDDEN, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
BERT_NAMES = {
    "tokenizer_class": "BertTokenizer",
    "do_lower_case": True,
    "model_max_length": 64,
    "unk_token": "[UNK]",
} | {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "mask")}
T5_NAMES = {
    "tokenizer_class": "T5Tokenizer",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "extra_ids": 0,
}


@dataclass
class Answer:
    """Computes the vectors that a checkpoint should give, one text at a time."""

    model: torch.nn.Module
    tokenizer: object
    projection: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    markers: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=lambda: {"query": 64, "document": 64})
    expand: bool = False
    attend: bool = False
    mask_id: int | None = None
    skip: frozenset[int] = frozenset()
    lower: bool = False

    def __call__(self, text: str, task: str) -> tuple[torch.Tensor, list[int]]:
        ids = self.tokenizer.encode(text.lower() if self.lower else text).ids
        marker, length = self.markers.get(task), self.lengths[task]
        room = length - (marker is not None)
        closing = 1  # every tokenizer here ends a text with one special token
        ids = ids if len(ids) <= room else ids[: room - closing] + ids[-closing:]
        if marker is not None:
            ids = [ids[0], marker, *ids[1:]]
        attention = [1] * len(ids)
        if task == "query" and self.expand:
            missing = length - len(ids)
            ids, attention = ids + [self.mask_id] * missing, attention + [int(self.attend)] * missing
        with torch.no_grad():
            x = self.model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([attention])).last_hidden_state[0]
            y = x if self.projection is None else x @ self.projection.T
            y = y if self.residual is None else y + x @ self.residual.T
            y = y / y.norm(dim=-1, keepdim=True)
        keep = [task == "query" or i not in self.skip for i in ids]
        return y[torch.tensor(keep)], [i for i, kept in zip(ids, keep, strict=True) if kept]


def random_model(kind: str, tokenizer, seed: int = 0):
    """A random backbone whose layer norms and biases are random too, so that a lost one shows."""
    torch.manual_seed(seed)
    size = tokenizer.get_vocab_size()
    if kind == "bert":
        model = BertModel(BertConfig(vocab_size=size, max_position_embeddings=64, **SHAPE), add_pooling_layer=False)
    elif kind == "mpnet":
        model = MPNetModel(MPNetConfig(vocab_size=size, max_position_embeddings=66, **SHAPE), add_pooling_layer=False)
    elif kind in ("t5", "mt5"):
        config, cls = (T5Config, T5EncoderModel) if kind == "t5" else (MT5Config, MT5EncoderModel)
        model = cls(config(vocab_size=size, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, **T5_SHAPE))
    else:
        ids = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
        window = {"local_attention": 8, "global_attn_every_n_layers": 2, "max_position_embeddings": 64}
        model = ModernBertModel(ModernBertConfig(vocab_size=size, **SHAPE, **window, **ids))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def tokenizer_of(kind: str, *extra: str):
    return {"t5": unigram, "mt5": unigram, "modernbert": byte_level}.get(kind, lambda: wordpiece(*extra))()


def names_of(kind: str) -> dict:
    if kind in ("t5", "mt5"):
        return T5_NAMES | {"model_max_length": 10**30}
    if kind == "modernbert":
        return BERT_NAMES | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
        }
    if kind == "mpnet":
        return BERT_NAMES | {"tokenizer_class": "PreTrainedTokenizerFast"}
    return BERT_NAMES


def write_json(path: Path, data) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def write_weights(folder: Path, tensors: dict, *, safe: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    if safe:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        torch.save(tensors, folder / "pytorch_model.bin")


def write_backbone(
    folder: Path, kind: str, model, tokenizer, *, architecture=None, prefix="", extra=None, safe=True
) -> None:
    config = model.config.to_dict() | {"architectures": [architecture or type(model).__name__]}
    write_json(folder / "config.json", config)
    tensors = dict(model.state_dict())
    if kind in ("t5", "mt5"):
        tensors.pop("encoder.embed_tokens.weight", None)  # tied: stored once
    write_weights(folder, {prefix + name: tensor for name, tensor in tensors.items()} | (extra or {}), safe=safe)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", names_of(kind))


def random_projection(rows: int = DIM, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(seed))


def punctuation_ids(tokenizer) -> frozenset[int]:
    return frozenset(tokenizer.token_to_id(mark) for mark in string.punctuation)


def stanford(folder: Path, *, nested=False, safe=True, metadata=True, attend=False, punctuation=True) -> Answer:
    """colbertv2.0: encoder under ``bert.``, ``linear.weight``, ``artifact.metadata``."""
    tokenizer = tokenizer_of("bert")
    model, projection = random_model("bert", tokenizer), random_projection()
    write_backbone(
        folder, "bert", model, tokenizer,
        architecture="HF_ColBERT", prefix="bert.", extra={"linear.weight": projection}, safe=safe,
    )  # fmt: skip
    settings = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 12,
        "doc_maxlen": 14,
        "dim": DIM,
        "mask_punctuation": punctuation,
        "attend_to_mask_tokens": attend,
        "similarity": "cosine",
    }
    if metadata:
        write_json(folder / "artifact.metadata", {"config": settings, "version": 1} if nested else settings)
    return Answer(
        model,
        tokenizer,
        projection,
        markers={"query": tokenizer.token_to_id("[unused0]"), "document": tokenizer.token_to_id("[unused1]")},
        lengths={"query": 12, "document": 14},
        expand=True,
        attend=attend,
        mask_id=tokenizer.token_to_id("[MASK]"),
        skip=punctuation_ids(tokenizer) if punctuation else frozenset(),
    )


def pylate(
    folder: Path,
    *,
    dense="pylate.models.Dense.Dense",
    expand=True,
    attend=False,
    skip=None,
    residual=False,
    model_type="ColBERT",
    safe=True,
) -> Answer:
    """``modules.json`` with a Transformer and ``1_Dense``; the markers are added tokens with their space."""
    tokenizer = tokenizer_of("bert")
    tokenizer.add_tokens(["[Q] ", "[D] "])
    model, projection = random_model("bert", tokenizer), random_projection()
    write_backbone(folder, "bert", model, tokenizer, safe=safe)
    write_json(
        folder / "modules.json",
        [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Dense", "type": dense},
        ],
    )
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 19, "do_lower_case": False})
    settings = {
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 12,
        "document_length": 20,
        "attend_to_expansion_tokens": attend,
        "do_query_expansion": expand,
        "prompts": {},
        "similarity_fn_name": "MaxSim",
    }
    if skip is not None:
        settings["skiplist_words"] = skip
    if model_type is not None:
        settings["model_type"] = model_type
    write_json(folder / "config_sentence_transformers.json", settings)
    layer = {"in_features": HIDDEN, "out_features": DIM, "bias": False}
    layer["activation_function"] = "torch.nn.modules.linear.Identity"
    tensors = {"linear.weight": projection}
    if residual:
        layer["use_residual"] = True
        tensors["residual.weight"] = random_projection(seed=2)
    write_json(folder / "1_Dense" / "config.json", layer)
    write_weights(folder / "1_Dense", tensors, safe=safe)
    skipped = list(string.punctuation) if skip is None else skip
    return Answer(
        model,
        tokenizer,
        projection,
        residual=tensors.get("residual.weight"),
        markers={"query": tokenizer.token_to_id("[Q] "), "document": tokenizer.token_to_id("[D] ")},
        lengths={"query": 12, "document": 20},
        expand=expand,
        attend=attend,
        mask_id=tokenizer.token_to_id("[MASK]"),
        skip=frozenset(tokenizer.token_to_id(word) for word in skipped),
    )


def sentence_transformers_6(folder: Path) -> Answer:
    """``model_type "MultiVectorEncoder"``: Transformer, Dense, MultiVectorMask, Normalize; text prompts."""
    tokenizer = tokenizer_of("bert")
    model, projection = random_model("bert", tokenizer), random_projection()
    write_backbone(folder, "bert", model, tokenizer)
    base, late = "sentence_transformers.base.modules", "sentence_transformers.multi_vector_encoder.modules"
    types = {
        "": f"{base}.transformer.Transformer",
        "1_Dense": f"{base}.dense.Dense",
        "2_MultiVectorMask": f"{late}.multi_vector_mask.MultiVectorMask",
        "3_Normalize": f"{base}.normalize.Normalize",
    }
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(types.items())]
    write_json(folder / "modules.json", modules)
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "model_type": "MultiVectorEncoder",
            "prompts": {"query": "why ", "document": ""},
            "similarity_fn_name": "maxsim",
        },
    )
    write_json(folder / "sentence_bert_config.json", {"query_length": 12, "document_length": 16})
    write_json(
        folder / "1_Dense" / "config.json",
        {
            "in_features": HIDDEN,
            "out_features": DIM,
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
            "module_input_name": "token_embeddings",
            "module_output_name": "token_embeddings",
        },
    )
    write_weights(folder / "1_Dense", {"linear.weight": projection}, safe=True)
    write_json(
        folder / "2_MultiVectorMask" / "config.json", {"skiplist_words": [",", "."], "skiplist_tasks": ["document"]}
    )
    write_json(folder / "3_Normalize" / "config.json", {"module_input_name": "token_embeddings"})
    why = tokenizer.token_to_id("why")
    return Answer(
        model,
        tokenizer,
        projection,
        markers={"query": why},  # one word as prompt: the same as a marker
        lengths={"query": 12, "document": 16},
        skip=frozenset(tokenizer.token_to_id(mark) for mark in ",."),
    )


def xtr(folder: Path) -> Answer:
    """google/xtr-base-en: a T5 encoder and ``2_Dense/pytorch_model.bin``, no ``modules.json``."""
    tokenizer = unigram()
    model, projection = random_model("t5", tokenizer), random_projection()
    write_backbone(folder, "t5", model, tokenizer)
    write_weights(folder / "2_Dense", {"linear.weight": projection}, safe=False)
    write_json(
        folder / "2_Dense" / "config.json",
        {
            "in_features": HIDDEN,
            "out_features": DIM,
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
    )
    return Answer(model, tokenizer, projection, lengths={"query": 512, "document": 512}, lower=True)


def plain(folder: Path, kind: str, projection: torch.Tensor | None = None, *, safe=True) -> Answer:
    """A Hugging Face folder as it is."""
    tokenizer = tokenizer_of(kind)
    model = random_model(kind, tokenizer)
    write_backbone(folder, kind, model, tokenizer, safe=safe)
    length = 512 if kind in ("t5", "mt5") else 64
    return Answer(model, tokenizer, projection, lengths={"query": length, "document": length})
