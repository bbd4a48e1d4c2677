"""Frozen lower layers, computed once for each text, which makes training without a GPU feasible.

When the first layers of a transformer are not trained, their output for a text never changes. `remember` keeps it in
a folder (half precision, about 100 kB a passage), so that later epochs, other recipes and the teacher of a distillation
pay for the upper layers only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.errors import invalid

_RECORD = np.dtype([("key", "V16"), ("begin", "<i8"), ("tokens", "<i8")])


def freeze(transformer: nn.Module, layers: int) -> None:
    """Stop training the embeddings and the first layers of a Hugging Face encoder."""
    found = encoder_layers(transformer)
    if not 0 <= layers <= len(found):
        raise invalid("frozen_layers", "freeze", f"between 0 and the model's {len(found)} layers", layers)
    if layers:
        for name, parameter in transformer.named_parameters():
            if "embeddings" in name.split(".") or "shared" in name.split("."):
                parameter.requires_grad_(False)
        for layer in found[:layers]:
            layer.requires_grad_(False)
        embeddings = getattr(transformer, "embeddings", None)
        for part in (*found[:layers], *([] if embeddings is None else [embeddings])):
            for module in part.modules():
                if isinstance(module, nn.Dropout):  # frozen layers give one answer for each text
                    module.p = 0.0


def encoder_layers(transformer: nn.Module) -> nn.ModuleList:
    """Return the stack of layers of a BERT, MPNet, ModernBERT or T5 encoder."""
    for owner in (transformer, getattr(transformer, "encoder", None)):
        for name in ("layer", "layers", "block"):
            layers = getattr(owner, name, None)
            if isinstance(layers, nn.ModuleList):
                return layers
    raise invalid("base", "encoder_layers", "an encoder with a list of layers", type(transformer).__name__)


class StateFile:
    """Hidden states by text, appended to a file and read back through a memory map.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     states = StateFile(Path(folder), width=2)
    ...     states.put(b"k" * 16, np.ones((3, 2), np.float16))
    ...     states.get(b"k" * 16).shape, states.get(b"x" * 16)
    ((3, 2), None)
    """

    def __init__(self, folder: Path, width: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._width = width
        self._states, self._records = folder / "states.f16", folder / "records.bin"
        self._end = 0
        self._where: dict[bytes, tuple[int, int]] = {}
        row = 2 * width
        held = self._states.stat().st_size // row if self._states.exists() else 0
        if self._records.exists():
            data = self._records.read_bytes()
            whole = len(data) // _RECORD.itemsize * _RECORD.itemsize  # an interrupted run may leave half a record
            for record in np.frombuffer(data[:whole], _RECORD):
                begin, tokens = int(record["begin"]), int(record["tokens"])
                if begin + tokens > held:
                    break
                self._where[record["key"].tobytes()] = (begin, tokens)
                self._end = max(self._end, begin + tokens)
        self._map: Any = None

    def __len__(self) -> int:
        return len(self._where)

    def put(self, key: bytes, states: np.ndarray[Any, Any]) -> None:
        """Keep (tokens, width) hidden states under a 16-byte key; the states first, then the record that names them."""
        with open(self._states, "r+b" if self._states.exists() else "w+b") as file:
            file.seek(2 * self._width * self._end)
            file.write(np.ascontiguousarray(states, np.float16).tobytes())
        with open(self._records, "ab") as file:
            file.write(np.array([(key, self._end, len(states))], _RECORD).tobytes())
        self._where[key] = (self._end, len(states))
        self._end += len(states)

    def get(self, key: bytes) -> np.ndarray[Any, Any] | None:
        """Return the states of a key, or None."""
        if key not in self._where:
            return None
        begin, tokens = self._where[key]
        if self._map is None or len(self._map) < begin + tokens:
            self._map = np.memmap(self._states, np.float16, "r").reshape(-1, self._width)
        found: np.ndarray[Any, Any] = self._map[begin : begin + tokens]
        return found


def check_rememberable(transformer: nn.Module) -> None:
    """Refuse encoders whose layers are not BERT's."""
    if type(transformer).__name__ != "BertModel":
        raise invalid("remember_frozen", "remember", "used with a BERT encoder", type(transformer).__name__)


@contextmanager
def remember(transformers: Sequence[nn.Module], layers: int, folder: str | Path, identity: str) -> Iterator[StateFile]:
    """Compute the frozen first layers of these encoders (the model's, the teacher's) once for each text.

    Parameters
    ----------
    transformers : encoders with equal first layers
        Only BERT-like ones, whose layers take and give one tensor of hidden states.
    layers : int
        How many of the first layers are frozen (see `freeze`).
    folder : path
        Where states are kept; one folder may serve many runs.
    identity : str
        Names the base weights; states of other weights are never mixed up.
    """
    for transformer in transformers:
        check_rememberable(transformer)
    width = int(transformers[0].config.hidden_size)  # type: ignore[union-attr, arg-type]
    name = hashlib.sha256(f"{identity}|{layers}|{width}".encode()).hexdigest()[:16]
    states = StateFile(Path(folder) / name, width)
    undo = [_patch(transformer, layers, states) for transformer in transformers]
    try:
        yield states
    finally:
        for restore in undo:
            restore()


def _patch(transformer: nn.Module, layers: int, states: StateFile) -> Any:
    """Make the first layer look states up (or compute all frozen layers), and the other frozen layers pass them on."""
    frozen = list(encoder_layers(transformer)[:layers])
    originals = [layer.forward for layer in frozen]
    batch: dict[str, Tensor] = {}

    def see(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        batch["ids"] = kwargs["input_ids"] if "input_ids" in kwargs else args[0]

    def first(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        ids = batch["ids"].cpu().numpy().astype(np.int32)
        lengths = (ids != transformer.config.pad_token_id).sum(1).tolist()  # type: ignore[union-attr]
        keys = [
            hashlib.md5(row[:n].tobytes(), usedforsecurity=False).digest() for row, n in zip(ids, lengths, strict=True)
        ]
        if any(states.get(key) is None for key in keys):
            with torch.no_grad():
                computed = hidden
                for layer, forward in zip(frozen, originals, strict=True):
                    training, _ = layer.training, layer.eval()
                    computed = forward(computed, *args, **kwargs)
                    layer.train(training)
            for i, (key, n) in enumerate(zip(keys, lengths, strict=True)):
                if states.get(key) is None:
                    states.put(key, computed[i, :n].float().cpu().numpy())
        found = torch.zeros_like(hidden, requires_grad=False)
        for i, (key, n) in enumerate(zip(keys, lengths, strict=True)):
            kept = states.get(key)
            assert kept is not None
            found[i, :n] = torch.from_numpy(np.array(kept, dtype=np.float32)).to(hidden)
        return found

    # On the embeddings, since callers may bypass the hooks of the whole model.
    hook = transformer.embeddings.register_forward_pre_hook(see, with_kwargs=True)  # type: ignore[operator, union-attr]
    for i, layer in enumerate(frozen):
        layer.forward = first if i == 0 else (lambda hidden, *args, **kwargs: hidden)  # noqa: ARG005

    def restore() -> None:
        hook.remove()
        for layer in frozen:
            del layer.forward

    return restore
