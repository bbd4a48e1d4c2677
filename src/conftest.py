"""Doctests of modules that import torch are collected only where it is installed."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["weft/alignment/lp_torch.py"]
