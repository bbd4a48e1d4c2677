"""Doctests of modules that import optional packages are collected only where those are installed."""

import importlib.util
from pathlib import Path

LIGHT_GENERATIVE = (
    "__init__", "answers", "attention", "constraint", "corpus", "exact_match", "examples", "feature_kernel",
    "identifiers", "low_rank", "recipes", "seal", "spans", "store", "trie",
)  # fmt: skip
"""Of the generative room: its index, identifiers and recipes. Every other module there waits for torch, so that a new
one does too."""

LIGHT_SERVING = ("__init__", "async_client", "client", "keys", "naming", "pool", "problems", "query_cache")
"""Of the serving room: the client and what needs no server. Every other module there waits for the serve extra, so
that a new one does too."""


def modules(room: str, light: tuple[str, ...]) -> list[str]:
    """Return the files of a room but for the light ones."""
    files = Path(__file__, "..", "weft", room).resolve().glob("*.py")
    return [f"weft/{room}/{path.name}" for path in sorted(files) if path.stem not in light]


NEED_ROUTER = ("fleet", "following", "log", "replica", "replicas", "routed", "routing", "wire")
"""Of the cluster's room: they are servers."""

NEED_RAY = ("control", "ray_actors")
"""Of the cluster's room; the others run without Ray."""

NEED = {
    "torch": [
        "weft/alignment/lp_torch.py",
        "weft/encoders/graph.py",
        "weft/encoders/importers/*",
        "weft/encoders/salience.py",
        "weft/encoders/torch_backend.py",
        "weft/encoders/saved_module.py",
        "weft/encoders/whole_text.py",
        "weft/training/*",
        *modules("generative", LIGHT_GENERATIVE),
    ],
    "msgspec": modules("serving", LIGHT_SERVING) + [f"weft/cluster/{name}.py" for name in NEED_ROUTER],
    "ray": [f"weft/cluster/{name}.py" for name in NEED_RAY],
    "mcp": ["weft/serving/tools.py"],
    "rapidfuzz": ["weft/generative/spans.py"],
    "sklearn": ["weft/generative/identifiers.py"],
    "langchain_core": ["weft/integrations/langchain.py", "weft/integrations/langchain_filters.py"],
    "llama_index": ["weft/integrations/llama_index.py", "weft/integrations/llama_index_filters.py"],
    "pyterrier": ["weft/integrations/pyterrier.py"],
}

collect_ignore_glob = [
    path for package, paths in NEED.items() if not importlib.util.find_spec(package) for path in paths
]
