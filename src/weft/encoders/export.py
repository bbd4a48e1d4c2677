"""From a checkpoint to its light form: an ONNX graph, fp32 or int8, beside the tokenizer and the settings.

In int8 the weights of matrix products are bytes, with one scale for each output channel. Their inputs are turned into
bytes when the graph runs, with one scale for each text. Rows of the embedding tables are bytes with one scale each.
Weights use 7 of 8 bits: on processors without VNNI the sums of products of full bytes overflow their 16 bits. The
projection and the salience heads, a hundredth of the work, stay fp32. docs/notes/int8.md says what each choice costs.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.encoders.encoder import Encoder
from weft.encoders.light import open_session
from weft.encoders.settings import MODEL_FILE, PRECISIONS, SETTINGS_FILE, TOKENIZER_FILE
from weft.errors import CheckpointError, invalid, missing_extra

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

OPSET = 20
BLOCK = 32
"""With half bytes, this many numbers of an embedding share a scale."""
LARGEST_DIFFERENCE = 1e-3
"""An fp32 graph whose vectors differ from torch's by more than this is refused: the export went wrong."""


def export(
    model: Encoder | MultiVectorEncoder | str | Path,
    folder: str | Path,
    *,
    precision: str = "int8",
    name: str | None = None,
    query_length: int | None = None,
    document_length: int | None = None,
    embedding_bits: int = 8,
    overwrite: bool = False,
    **load: Any,
) -> Path:
    """Write the light form of a model.

    Parameters
    ----------
    model : Encoder, MultiVectorEncoder, str or Path
        A torch encoder, a model of sentence-transformers, or what `Encoder.load` takes.
    folder : str or Path
        Where to write ``weft_encoder.json``, ``tokenizer.json`` and ``model.onnx``.
    precision : str
        ``"int8"`` or ``"fp32"``.
    name : str, optional
        A name for the model.
    query_length, document_length : int, optional
        Lengths other than the checkpoint's.
    embedding_bits : int
        8 or, where the vocabulary is most of the model, 4: bits of a number of the token embeddings, int8 only.
    overwrite : bool
        Replace a light model that is there already.
    **load
        Further parameters of `Encoder.load`, for a name or a path.

    Returns
    -------
    Path
        The folder.
    """
    check_target(folder, precision, overwrite, embedding_bits)
    encoder = as_torch_encoder(model, **load)
    with TemporaryDirectory() as made:
        graph = Path(made) / MODEL_FILE
        write_graph(encoder, graph)
        return write_folder(
            encoder,
            graph,
            folder,
            precision=precision,
            name=name,
            overwrite=overwrite,
            query_length=query_length,
            document_length=document_length,
            embedding_bits=embedding_bits,
        )


def check_target(folder: str | Path, precision: str, overwrite: bool, embedding_bits: int = 8) -> None:
    """Refuse a folder that the light form must not be written to, before the long work."""
    if embedding_bits not in (4, 8):
        raise invalid("embedding_bits", "export", "4 or 8", embedding_bits)
    if precision not in PRECISIONS:
        raise invalid("precision", "export", f"one of {PRECISIONS}", precision)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise invalid("folder", "export", "a folder", str(folder))
    light = (folder / SETTINGS_FILE).is_file()
    if folder.is_dir() and any(folder.iterdir()) and not (overwrite and light):
        hint = "empty or new" + (" (overwrite=True replaces a light model)" if light else "")
        raise invalid("folder", "export", hint, str(folder))


def write_folder(
    encoder: Encoder,
    graph: Path,
    folder: str | Path,
    *,
    precision: str = "int8",
    name: str | None = None,
    query_length: int | None = None,
    document_length: int | None = None,
    embedding_bits: int = 8,
    overwrite: bool = False,
) -> Path:
    """Write a light folder around the fp32 graph that `write_graph` made; the parameters are those of `export`."""
    check_target(folder, precision, overwrite, embedding_bits)
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
        target = Path(made)
        shutil.copyfile(graph, target / MODEL_FILE)
        if precision == "int8":
            quantize(target / MODEL_FILE, _small_weights(encoder), embedding_bits)
        encoder.tokenizer.save(str(target / TOKENIZER_FILE), pretty=False)
        settings = encoder.settings.with_lengths(query_length, document_length)
        settings = dataclasses.replace(
            settings,
            name=name or settings.name,
            precision=precision,
            fingerprint=encoder.fingerprint,
            files={file: (target / file).stat().st_size for file in (MODEL_FILE, TOKENIZER_FILE)},
        )
        (target / SETTINGS_FILE).write_text(settings.to_json(), encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for file in (MODEL_FILE, TOKENIZER_FILE, SETTINGS_FILE):
            os.replace(target / file, folder / file)
    return folder


def as_torch_encoder(model: Any, **load: Any) -> Encoder:
    """Return a torch encoder on the CPU for whatever `export` takes."""
    if isinstance(model, (str, Path)):
        model = Encoder.load(model, backend="torch", device="cpu", **load)
    try:
        from sentence_transformers import MultiVectorEncoder

        from weft.encoders.torch_backend import TorchBackend, describe, plain_tokenizer
    except ImportError as error:
        raise missing_extra(error.name or "torch", "torch", "Exporting a model") from None
    if isinstance(model, MultiVectorEncoder):
        settings = describe(model, Path(model.model_card_data.model_name or "model").name)
        return Encoder(settings, plain_tokenizer(model), TorchBackend(model, settings))
    if not isinstance(model, Encoder) or not isinstance(model.backend, TorchBackend):
        raise invalid("model", "export", "a torch Encoder, a MultiVectorEncoder, a folder or a name", model)
    return model


def write_graph(encoder: Encoder, path: Path) -> None:
    """Write the fp32 graph, and make sure that it computes what torch does."""
    import torch

    from weft.encoders.graph import Graph

    graph = Graph(copy.deepcopy(encoder.backend.model).cpu()).eval()  # type: ignore[attr-defined]
    ids, attention = _example(encoder, (2, 7))
    dynamic = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens")}
    with torch.inference_mode(), quiet_exporter():
        torch.onnx.export(
            graph,
            (torch.from_numpy(ids), torch.from_numpy(attention)),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["vectors", "salience"] if encoder.has_salience else ["vectors"],
            dynamic_shapes={"input_ids": dynamic, "attention_mask": dynamic},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        session = open_session(path)
        for shape in ((1, 1), (1, 9), (3, 16)):
            ids, attention = _example(encoder, shape)
            expected = [x.numpy() for x in graph(torch.from_numpy(ids), torch.from_numpy(attention))]
            found = session.run(None, {"input_ids": ids, "attention_mask": attention})
            real = attention.astype(bool)
            for ours, theirs in zip(found, expected, strict=True):
                difference = float(np.abs(ours - theirs)[real].max() / max(1.0, np.abs(theirs[real]).max()))
                if not difference <= LARGEST_DIFFERENCE:
                    raise CheckpointError(f"the graph of {encoder.name} differs from torch by {difference:.2g}")


def quantize(path: Path, keep: list[np.ndarray[Any, Any]], embedding_bits: int = 8) -> None:
    """Turn an fp32 graph into an int8 one, in place; matrix products with the weights `keep` stay fp32."""
    import onnx
    from onnx import numpy_helper
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(str(path))
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in constants:
            weight = numpy_helper.to_array(constants[node.input[1]])
            if any(weight.shape == other.shape and np.array_equal(weight, other) for other in keep):
                kept.append(node.name)
    _quantize_embeddings(model, embedding_bits)
    # What pre-processing would do, shapes and constant folding, the exporter has done.
    mark = model.metadata_props.add()
    mark.key, mark.value = "onnx.quant.pre_process", "onnxruntime.quant"
    with TemporaryDirectory(dir=path.parent) as made:
        source, target = Path(made) / "fp32.onnx", Path(made) / "int8.onnx"
        onnx.save(model, str(source))
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=kept,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
        shutil.move(target, path)


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Keep the exporter's remarks about itself off stderr; the graph is checked."""
    exporter = logging.getLogger("torch.onnx")
    before = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(before)


def _quantize_embeddings(model: Any, bits: int, least: int = 1024) -> None:
    """Store tables that rows are gathered from as bytes, one scale a row; the largest as half bytes with 4 bits."""
    from onnx import TensorProto, numpy_helper

    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    tables = {}
    for node in graph.node:
        table = constants.get(node.input[0]) if node.op_type == "Gather" else None
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        if table is None or table.data_type != TensorProto.FLOAT or len(table.dims) != 2 or axis != 0:
            continue
        if np.prod(table.dims) >= least and sum(table.name in other.input for other in graph.node) == 1:
            tables[node.output[0]] = table
    largest: Any = max(tables.values(), key=lambda table: table.dims[0], default=None)
    nodes = []
    for node in graph.node:
        table = tables.get(node.output[0])
        if table is None:
            nodes.append(node)
            continue
        halves = bits == 4 and table is largest and table.dims[1] % (2 * BLOCK) == 0
        values = numpy_helper.to_array(table)
        constant, made = (_half_bytes if halves else _bytes)(table.name, values, node.input[1], node.output[0])
        graph.initializer.extend(constant)
        graph.initializer.remove(table)
        nodes += made
    del graph.node[:]
    graph.node.extend(nodes)


def _bytes(name: str, values: np.ndarray[Any, Any], ids: str, out: str) -> tuple[list[Any], list[Any]]:
    """Return the constants and the nodes for rows of bytes with a scale each."""
    from onnx import TensorProto, helper, numpy_helper

    scale = np.abs(values).max(axis=1, keepdims=True).astype(np.float32) / 127
    scale[scale == 0] = 1
    rows = np.rint(values / scale).astype(np.int8)
    return [numpy_helper.from_array(rows, f"{name}_bytes"), numpy_helper.from_array(scale, f"{name}_scale")], [
        helper.make_node("Gather", [f"{name}_bytes", ids], [f"{out}_bytes"]),
        helper.make_node("Cast", [f"{out}_bytes"], [f"{out}_cast"], to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{name}_scale", ids], [f"{out}_scale"]),
        helper.make_node("Mul", [f"{out}_cast", f"{out}_scale"], [out]),
    ]


def _half_bytes(name: str, values: np.ndarray[Any, Any], ids: str, out: str) -> tuple[list[Any], list[Any]]:
    """Return the constants and the nodes for rows of half bytes, one scale a block.

    A byte holds a number of the first half of the row in its upper four bits and one of the second half in its lower
    four, each with 8 added. Only operations that every ONNX runtime has take them apart.
    """
    from onnx import TensorProto, helper, numpy_helper

    width = values.shape[1]
    blocks = values.reshape(len(values), -1, BLOCK).astype(np.float32)
    scale = (np.abs(blocks).max(axis=2, keepdims=True) / 7).astype(np.float16)
    scale[scale == 0] = 1
    whole = np.clip(np.rint(blocks / scale.astype(np.float32)), -7, 7).astype(np.int8).reshape(len(values), width) + 8
    upper, lower = np.split(whole.astype(np.uint8), 2, axis=1)
    constants = {
        f"{name}_half_bytes": upper << 4 | lower,
        f"{name}_scale": scale[..., 0],
        f"{out}_sixteen": np.array(16, np.float32),
        f"{out}_eight": np.array(8, np.float32),
        f"{out}_blocks": np.array([0, 0, width // BLOCK, BLOCK], np.int64),
        f"{out}_row": np.array([0, 0, width], np.int64),
        f"{out}_last": np.array([-1], np.int64),
    }
    node = helper.make_node
    return [numpy_helper.from_array(array, key) for key, array in constants.items()], [
        node("Gather", [f"{name}_half_bytes", ids], [f"{out}_gathered"]),
        node("Cast", [f"{out}_gathered"], [f"{out}_both"], to=TensorProto.FLOAT),
        node("Div", [f"{out}_both", f"{out}_sixteen"], [f"{out}_shifted"]),
        node("Floor", [f"{out}_shifted"], [f"{out}_upper"]),
        node("Mul", [f"{out}_upper", f"{out}_sixteen"], [f"{out}_high"]),
        node("Sub", [f"{out}_both", f"{out}_high"], [f"{out}_lower"]),
        node("Concat", [f"{out}_upper", f"{out}_lower"], [f"{out}_joined"], axis=-1),
        node("Sub", [f"{out}_joined", f"{out}_eight"], [f"{out}_whole"]),
        node("Reshape", [f"{out}_whole", f"{out}_blocks"], [f"{out}_parted"]),
        node("Gather", [f"{name}_scale", ids], [f"{out}_scale16"]),
        node("Cast", [f"{out}_scale16"], [f"{out}_scale32"], to=TensorProto.FLOAT),
        node("Unsqueeze", [f"{out}_scale32", f"{out}_last"], [f"{out}_scales"]),
        node("Mul", [f"{out}_parted", f"{out}_scales"], [f"{out}_scaled"]),
        node("Reshape", [f"{out}_scaled", f"{out}_row"], [out]),
    ]


def _small_weights(encoder: Encoder) -> list[np.ndarray[Any, Any]]:
    """Return the matrices after the transformer, as a graph has them: (in, out)."""
    import torch

    modules = list(encoder.backend.model)[1:]  # type: ignore[attr-defined]
    linear = [layer for module in modules for layer in module.modules() if isinstance(layer, torch.nn.Linear)]
    return [layer.weight.detach().cpu().float().numpy().T for layer in linear]


def _example(encoder: Encoder, shape: tuple[int, int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return token ids and a mask that hides the end of the last text. Shapes (B, T)."""
    ids = np.random.default_rng(0).integers(1, encoder.tokenizer.get_vocab_size(), shape)
    attention = np.ones_like(ids)
    if shape[0] > 1:
        attention[-1, shape[1] // 2 :] = 0
    return ids, attention
