"""A tiny light model with query towers made by hand, and what those must compute, in NumPy. No torch.

fast: vectors = normalise(up · (word + position + type) + table), salience = |sum of these|. static: as its class says.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from encoders.light_models import DIM, SETTINGS, TOKENIZER, graph
from weft.encoders.query_towers import TowerSettings
from weft.encoders.settings import Side

TOKENS = TOKENIZER.get_vocab_size()
WIDTH = 4
_rng = np.random.default_rng(11)
MODEL = dataclasses.replace(SETTINGS, query=Side(10, gate="relu"), max_length=16, salience_weighs=False)
BYTES = _rng.integers(-127, 128, (TOKENS, WIDTH)).astype(np.int8)
SCALE = _rng.uniform(0.005, 0.02, (TOKENS, 1)).astype(np.float32)
POSITIONS = _rng.standard_normal((16, WIDTH)).astype(np.float32)
TYPES = _rng.standard_normal((2, WIDTH)).astype(np.float32)
UP = _rng.standard_normal((WIDTH, DIM)).astype(np.float32)
TABLE = _rng.standard_normal((TOKENS, DIM)).astype(np.float32)
STATIC = {
    "table": _rng.integers(-127, 128, (TOKENS, DIM)).astype(np.int8),
    "scale": _rng.uniform(0.005, 0.02, TOKENS).astype(np.float32),
    "weight": _rng.standard_normal(TOKENS).astype(np.float16),
    "salient": _rng.standard_normal(TOKENS).astype(np.float16),
    "neighbours": _rng.standard_normal((3 * DIM, DIM)).astype(np.float16),
    "neighbours_bias": _rng.standard_normal(DIM).astype(np.float16),
    "text": _rng.standard_normal((2 * DIM, 2 * DIM)).astype(np.float16),
    "text_bias": _rng.standard_normal(2 * DIM).astype(np.float16),
    "salience": _rng.standard_normal((3 * DIM, 1)).astype(np.float16),
    "salience_bias": _rng.standard_normal(1).astype(np.float16),
}


def write(folder: Path) -> Path:
    """Write the model with both towers."""
    folder.mkdir(parents=True, exist_ok=True)
    model = graph()
    name = "model.0.embeddings.{}_embeddings.weight{}"
    tables = {"word_bytes": BYTES, "word_scale": SCALE, "position": POSITIONS, "token_type": TYPES}
    for table, array in tables.items():
        word, _, suffix = table.partition("_") if table.startswith("word") else (table, "", "")
        model.graph.initializer.append(numpy_helper.from_array(array, name.format(word, suffix and f"_{suffix}")))
    onnx.save(model, str(folder / "model.onnx"))
    TOKENIZER.save(str(folder / "tokenizer.json"))
    sizes = {file: (folder / file).stat().st_size for file in ("model.onnx", "tokenizer.json")}
    (folder / "weft_encoder.json").write_text(dataclasses.replace(MODEL, files=sizes).to_json())
    write_fast(folder)
    write_static(folder)
    return folder


def describe(folder: Path, kind: str, /, **changes: object) -> None:
    """Write a tower's JSON, true but for the changes."""
    size = (folder / f"query-{kind}{'.onnx' if kind == 'fast' else '.npz'}").stat().st_size
    true = TowerSettings(kind, f"tiny-{kind}", MODEL.fingerprint, DIM, TOKENS, size, {})
    (folder / f"query-{kind}.json").write_text(json.dumps({"format": 1} | dataclasses.asdict(true) | changes))


def write_static(folder: Path, **changes: np.ndarray | None) -> None:
    arrays = {name: array for name, array in (STATIC | changes).items() if array is not None}
    with open(folder / "query-static.npz", "wb") as file:
        np.savez(file, **arrays)
    describe(folder, "static")


def write_fast(folder: Path, width: int = WIDTH) -> None:
    nodes = [
        helper.make_node("MatMul", ["embedded", "up"], ["states"]),
        helper.make_node("Gather", ["table", "ids"], ["own"]),
        helper.make_node("Add", ["states", "own"], ["y"]),
        helper.make_node("LpNormalization", ["y"], ["vectors"], axis=-1, p=2),
        helper.make_node("ReduceSum", ["y", "last"], ["s"], keepdims=0),
        helper.make_node("Abs", ["s"], ["salience"]),
    ]
    up = np.resize(UP, (width, DIM))
    whole = helper.make_graph(
        nodes,
        "fast",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "t"]),
            helper.make_tensor_value_info("embedded", TensorProto.FLOAT, [1, "t", width]),
        ],
        [
            helper.make_tensor_value_info("vectors", TensorProto.FLOAT, [1, "t", DIM]),
            helper.make_tensor_value_info("salience", TensorProto.FLOAT, [1, "t"]),
        ],
        [
            numpy_helper.from_array(up, "up"),
            numpy_helper.from_array(TABLE, "table"),
            numpy_helper.from_array(np.array([-1]), "last"),
        ],
    )
    made = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(made, str(folder / "query-fast.onnx"))
    describe(folder, "fast")


def answer(text: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and saliences of a query, token by token."""
    ids = TOKENIZER.encode(text).ids
    if len(ids) > MODEL.query.length:
        ids = [*ids[: MODEL.query.length - 1], ids[-1]]
    if kind == "fast":
        rows = [BYTES[i] * SCALE[i] + POSITIONS[place] + TYPES[0] for place, i in enumerate(ids)]
        y = np.array(rows, np.float64) @ UP + TABLE[ids]
        return _unit(y), np.abs(y.sum(1))
    a = {name: array.astype(np.float64) for name, array in STATIC.items()}
    own = [a["table"][i] * a["scale"][i] for i in ids]
    weights = np.array([np.exp(a["weight"][i]) for i in ids])
    mean = sum(w * x for w, x in zip(weights, own, strict=True)) / weights.sum()
    none = np.zeros(DIM)
    vectors, saliences = [], []
    for place, i in enumerate(ids):
        before = own[place - 1] if place else none
        after = own[place + 1] if place + 1 < len(ids) else none
        around = np.concatenate([before, after, mean])
        vectors.append(own[place] + around @ a["neighbours"] + a["neighbours_bias"])
        saliences.append(max(0, a["salient"][i] + around @ a["salience"][:, 0] + a["salience_bias"][0]))
    both = np.concatenate([mean, np.mean(vectors, axis=0)]) @ a["text"] + a["text_bias"]
    vectors[0], vectors[-1] = both[:DIM], both[DIM:]
    return _unit(np.array(vectors)), np.array(saliences)


def _unit(y: np.ndarray) -> np.ndarray:
    return y / np.linalg.norm(y, axis=1, keepdims=True)
