"""Helpers that import torch are collected (for doctests) only where it is installed."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["checkpoints.py"]
