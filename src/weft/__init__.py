"""weft: multi-vector retrieval as sparse alignment, rel(Q, D) = 1/Z · Σ S∘A.

Importing this package loads NumPy only. torch is used when you pass in tensors or load checkpoints.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from weft import _renamed
from weft.alignment import Alignment, align, aligned, score
from weft.cluster.connecting import connect, connect_async
from weft.encoders import Encoder
from weft.errors import InvalidParameterError, MissingExtraError, UnsupportedCPUError, WeftError
from weft.kernels import simd_level, simd_levels
from weft.search import Index
from weft.text_index import Match, TextIndex
from weft.types import Document, Hits, Ranking, Result, TokenVectors

_renamed.install()

if _TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    from importlib.metadata import version  # slow to import, and seldom asked for

    return version("weft-search")


__all__ = [
    "Alignment",
    "Document",
    "Encoder",
    "Hits",
    "Index",
    "InvalidParameterError",
    "Match",
    "MissingExtraError",
    "Ranking",
    "Result",
    "TextIndex",
    "TokenVectors",
    "UnsupportedCPUError",
    "WeftError",
    "__version__",
    "align",
    "aligned",
    "connect",
    "connect_async",
    "score",
    "simd_level",
    "simd_levels",
]
