"""The weights of a light model, read from its graph by the names that they had in torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import CheckpointError

_STEPS = ("Cast", "Mul", "Reshape", "Identity")  # between a product of bytes and its bias


class Weights(Mapping[str, NDArray[Any]]):
    """Matrices (in, out), vectors and tables by the end of their names: ``weights["layer.0.output.dense.bias"]``.

    What the graph keeps as bytes is given in single precision.
    """

    def __init__(self, path: Path) -> None:
        import onnx
        from onnx import numpy_helper

        self.path = path
        graph = onnx.load(str(self.path)).graph
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._array = numpy_helper.to_array
        made = {output: node for node in graph.node for output in node.output}
        self._found: dict[str, tuple[str, ...]] = {}
        for name in self._constants:
            if name.endswith(("_bytes", "_scale")) and "embeddings" in name:
                table = name.rpartition("_")[0]
                self._found[table] = (f"{table}_bytes", f"{table}_scale")
            elif name.startswith("model."):
                self._found[name] = (name,)
        for node in graph.node:
            bias = (
                next((name for name in node.input if name.endswith(".bias")), None) if node.op_type == "Add" else None
            )
            if bias is None:
                continue
            source = made.get(next(name for name in node.input if name != bias))
            while source is not None and source.op_type in _STEPS:
                source = made.get(source.input[0])
            if source is None or source.op_type not in ("MatMul", "MatMulInteger"):
                continue
            weight = source.input[1]
            scale = (weight.replace("_quantized", "_scale"),) if source.op_type == "MatMulInteger" else ()
            self._found[bias.removesuffix("bias") + "weight"] = (weight, *scale)

    def __getitem__(self, name: str) -> NDArray[Any]:
        fitting = [found for found in self._found if found == name or found.endswith(f".{name}")]
        if len(fitting) != 1:
            raise CheckpointError(
                f"{self.path} has {len(fitting) or 'no'} weights called {name}: query towers are made for models of "
                "BERT's layers with a whole-text projection (model.whole_text in their recipe)"
            )
        value, *scale = (np.asarray(self._array(self._constants[part])) for part in self._found[fitting[0]])
        return value.astype(np.float32) * scale[0] if scale else value.astype(np.float32)

    def __iter__(self) -> Any:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return any(found == name or found.endswith(f".{name}") for found in self._found)
