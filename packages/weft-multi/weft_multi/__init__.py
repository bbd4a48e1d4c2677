"""weft-multi, a multilingual late-interaction model: ``weft.Encoder.load("weft-multi")``, ``--model weft-multi``."""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
"""The light folder: settings, tokenizer and ONNX graph."""
