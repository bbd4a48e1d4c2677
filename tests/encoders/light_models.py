"""A tiny light model made by hand, and what it must compute, in NumPy. No torch.

x = E[ids]; vectors = normalise(x + mean of the attended x); salience = ReLU(x W), one column a side.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from encoders.tokenizers_of_tests import wordpiece
from weft.encoders.settings import Expansion, Settings, Side

DIM = 6
TOKENIZER = wordpiece()
_rng = np.random.default_rng(7)
TABLE = _rng.standard_normal((TOKENIZER.get_vocab_size(), DIM)).astype(np.float32)
HEADS = _rng.standard_normal((DIM, 2)).astype(np.float32)
IDS = {token: TOKENIZER.token_to_id(token) for token in ("[MASK]", "[CLS]", "[SEP]", ",", ".", "[unused0]")}

SETTINGS = Settings(
    name="tiny",
    dim=DIM,
    query=Side(8, "why ", Expansion(8, IDS["[MASK]"]), gate="relu"),
    document=Side(12, skip_ids=(IDS[","], IDS["."]), gate="hard:0.5"),
    max_length=64,
    fingerprint="of the tiny model",
)


def graph() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"]),
        helper.make_node("Cast", ["attention_mask"], ["m0"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m0", "last"], ["m"]),
        helper.make_node("Mul", ["x", "m"], ["xm"]),
        helper.make_node("ReduceSum", ["xm", "tokens"], ["total"]),
        helper.make_node("ReduceSum", ["m", "tokens"], ["count"]),
        helper.make_node("Div", ["total", "count"], ["mean"]),
        helper.make_node("Add", ["x", "mean"], ["y"]),
        helper.make_node("LpNormalization", ["y"], ["vectors"], axis=-1, p=2),
        helper.make_node("MatMul", ["x", "heads"], ["s"]),
        helper.make_node("Relu", ["s"], ["salience"]),
    ]
    whole = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "t"]) for n in ("input_ids", "attention_mask")],
        [
            helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["b", "t", DIM]),
            helper.make_tensor_value_info("salience", TensorProto.FLOAT, ["b", "t", 2]),
        ],
        [
            numpy_helper.from_array(TABLE, "table"),
            numpy_helper.from_array(HEADS, "heads"),
            numpy_helper.from_array(np.array([-1]), "last"),
            numpy_helper.from_array(np.array([1]), "tokens"),
        ],
    )
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def write(folder: Path, settings: Settings = SETTINGS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(graph(), str(folder / "model.onnx"))
    TOKENIZER.save(str(folder / "tokenizer.json"))
    sizes = {name: (folder / name).stat().st_size for name in ("model.onnx", "tokenizer.json")}
    (folder / "weft_encoder.json").write_text(dataclasses.replace(settings, files=sizes).to_json())
    return folder


def answer(text: str, task: str) -> dict[str, np.ndarray]:
    """Vectors, ids and saliences of one text, from scratch."""
    side = SETTINGS.query if task == "query" else SETTINGS.document
    ids = TOKENIZER.encode(side.prefix + text).ids
    if len(ids) > side.length:
        ids = [*ids[: side.length - 1], ids[-1]]
    attended = len(ids)
    if task == "query":
        ids = ids + [IDS["[MASK]"]] * (side.length - len(ids))
    x = TABLE[ids]
    y = x + x[:attended].mean(axis=0)
    s = np.maximum(x @ HEADS[:, 0 if task == "query" else 1], 0)
    s[attended:] = 0
    if task == "document":
        gate = np.zeros(len(s))
        gate[np.argsort(-s, kind="stable")[: int(np.ceil(len(s) / 2))]] = 1
        s = s * gate
    keep = [task == "query" or i not in side.skip_ids for i in ids]
    return {
        "values": (y / np.linalg.norm(y, axis=1, keepdims=True))[keep],
        "token_ids": np.array(ids)[keep],
        "salience": s[keep],
    }
