"""Products of few rows with a layer's weights, in full precision or in bytes.

With a dozen rows a product takes as long as reading the weights does. In bytes they are a quarter of the size, and a
processor multiplies four bytes for one float. Weights have one scale an output, states one a row; sums are integers, so
the only errors are those of rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.errors import invalid

LARGEST = 127
MIDDLE = 128
"""What 0 is among a state's unsigned bytes. oneDNN has fast products of unsigned with signed bytes only: with signed
states it takes a loop that is hundreds of times slower."""


class Floats:
    """x W of a layer, W (in, out) and contiguous: two to three times as fast as a module's x Wᵀ for a few rows."""

    def __init__(self, *layers: Any) -> None:
        self._weights = torch.cat([layer.weight.detach() for layer in layers]).T.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product for states (…, in)."""
        return x @ self._weights


class Bytes:
    """The same, rounded to bytes."""

    def __init__(self, *layers: Any) -> None:
        weights = torch.cat([layer.weight.detach().float() for layer in layers])  # (out, in)
        self._scales = (weights.abs().amax(1) / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
        rounded = (weights / self._scales[:, None]).round().to(torch.int8)
        self._weights = torch.ops.onednn.qlinear_prepack(rounded, None)
        self._zeros = torch.zeros(len(weights), dtype=torch.int64)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product for states (…, in)."""
        rows = x.reshape(-1, x.shape[-1])
        scale = (rows.abs().amax(1, keepdim=True) / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
        rounded = (rows / scale).round_().add_(MIDDLE).to(torch.uint8)
        weights = (self._weights, self._scales, self._zeros)
        plain: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")  # no bias, floats out, nothing after it
        found: Tensor = torch.ops.onednn.qlinear_pointwise(rounded, 1.0, MIDDLE, *weights, *plain)
        return found.mul_(scale).unflatten(0, x.shape[:-1])


def check_bytes(device: torch.device) -> None:
    """Refuse products in bytes where torch has none: on accelerators, and in builds without oneDNN."""
    if device.type == "cpu":
        try:
            layer = torch.nn.Linear(8, 8, bias=False)
            with torch.inference_mode():
                Bytes(layer)(torch.ones(1, 8))
        except (AttributeError, NotImplementedError, RuntimeError):
            pass
        else:
            return
    raise invalid("precision", "Retriever.open", f"'fp32' or 'bf16' here (torch {torch.__version__}, {device})", "int8")
