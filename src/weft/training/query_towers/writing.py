"""From a fitted student to the files that lie beside a model's (`weft.encoders.query_towers`)."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from weft.encoders import Encoder
from weft.encoders.export import LARGEST_DIFFERENCE, OPSET, quantize, quiet_exporter
from weft.encoders.light import open_session
from weft.encoders.query_towers import FAST, STATIC, SUFFIXES, TowerSettings, tower_file
from weft.errors import CheckpointError
from weft.training.query_towers.students import Layered, Static


def write_tower(
    student: Layered | Static, encoder: Encoder, folder: Path, name: str, provenance: dict[str, Any]
) -> Path:
    """Write a tower's two files and return its JSON."""
    kind = FAST if isinstance(student, Layered) else STATIC
    folder.mkdir(parents=True, exist_ok=True)
    described = folder / tower_file(kind)
    target = described.with_suffix(SUFFIXES[kind])
    with TemporaryDirectory(dir=folder, prefix=".tower-") as made:
        part = Path(made) / target.name
        if isinstance(student, Layered):
            _write_graph(student.eval(), part)
        else:
            with open(part, "wb") as file:
                np.savez(file, **static_arrays(student))  # type: ignore[arg-type]
        settings = TowerSettings(
            kind,
            name,
            encoder.fingerprint,
            encoder.dim,
            encoder.tokenizer.get_vocab_size(),
            part.stat().st_size,
            provenance,
        )
        (Path(made) / described.name).write_text(settings.to_json(), encoding="utf-8")
        os.replace(part, target)
        os.replace(Path(made) / described.name, described)
    return described


def static_arrays(student: Static) -> dict[str, NDArray[Any]]:
    """Return the arrays of a static tower's file: the table as bytes, one scale a row, the rest in half precision."""
    table = _numpy(student.table)
    scale = np.abs(table).max(axis=1) / 127
    scale[scale == 0] = 1
    arrays = {"table": np.rint(table / scale[:, None]).astype(np.int8), "scale": scale.astype(np.float32)}
    for name in ("weight", "salient"):
        arrays[name] = _numpy(getattr(student, name)).astype(np.float16)
    for name in ("neighbours", "text", "salience"):
        layer = getattr(student, name)
        arrays[name] = _numpy(layer.weight).T.astype(np.float16)
        arrays[f"{name}_bias"] = _numpy(layer.bias).astype(np.float16)
    return arrays


class _Graph(nn.Module):
    def __init__(self, student: Layered) -> None:
        super().__init__()
        self.student = student

    def forward(self, ids: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        return self.student.encode(ids, embedded)


def _write_graph(student: Layered, path: Path) -> None:
    """Write the int8 graph from ids (1, T) and embeddings (1, T, width), and check its fp32 form against torch."""
    vocabulary, width = student.words.shape
    graph = _Graph(student).eval()
    tokens = {1: torch.export.Dim("tokens", min=2)}
    with torch.inference_mode(), quiet_exporter():
        torch.onnx.export(
            graph,
            (torch.randint(vocabulary, (1, 7)), torch.randn(1, 7, width)),
            str(path),
            input_names=["ids", "embedded"],
            output_names=["vectors", "salience"],
            dynamic_shapes={"ids": tokens, "embedded": tokens},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        session = open_session(path)
        for length in (2, 9):
            ids, embedded = torch.randint(vocabulary, (1, length)), torch.randn(1, length, width)
            found = session.run(None, {"ids": ids.numpy(), "embedded": embedded.numpy()})
            for ours, theirs in zip(found, graph(ids, embedded), strict=True):
                difference = float(np.abs(ours - theirs.numpy()).max())
                if not difference <= LARGEST_DIFFERENCE:
                    raise CheckpointError(f"the graph of the query tower differs from torch by {difference:.2g}")
    heads = [_numpy(layer.weight).T for layer in (student.token, student.text, student.salience)]
    quantize(path, heads)


def _numpy(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().float().numpy())
