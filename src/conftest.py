"""Doctests of modules that import torch are collected only where it is installed."""

import importlib.util

NEED_TORCH = [
    "weft/alignment/lp_torch.py",
    "weft/encoders/graph.py",
    "weft/encoders/importers/*",
    "weft/encoders/salience.py",
    "weft/encoders/torch_backend.py",
    "weft/training/*",
]

collect_ignore_glob = [] if importlib.util.find_spec("torch") else NEED_TORCH
