"""Figures of engines that may not run on a machine, measured elsewhere, in multiples of int8 brute force.

From the table of ../shared/bench/README.md: a Xeon with AVX-512 VNNI, one thread, the same synthetic set of 10,000
documents, and 40,000 passages of other real text. A line counts only where the engine itself was not measured.
"""

from __future__ import annotations

from typing import NamedTuple


class Quoted(NamedTuple):
    """One line of that table."""

    engine: str  # the adapter's name, where there is one
    title: str
    data: str
    setting: str
    recall10: float
    recall100: float | None
    x_int8: float
    bytes_per_token: float | None = None


LINES = (
    Quoted("lemur", "LEMUR", "s10k", "re-rank 50", 0.955, 0.46, 0.22, 347),
    Quoted("lemur", "LEMUR", "s10k", "re-rank 100", 0.985, 0.74, 0.25, 347),
    Quoted("lemur", "LEMUR", "s10k", "re-rank 200", 0.998, 0.89, 0.28, 347),
    Quoted("tachiom", "Tachiom", "s10k", "k_centroids 10, 100 docs", 0.929, 0.684, 0.19, 62),
    Quoted("plaid", "PLAID (colbert-ai)", "s10k", "ncells 1, 256 docs", 0.948, 0.539, 0.39, 76),
    Quoted("plaid", "PLAID (colbert-ai)", "s10k", "ncells 2, 1024 docs", 0.950, 0.864, 1.11, 76),
    Quoted("muvera", "MUVERA", "s10k", "re-rank 200", 0.947, 0.65, 0.49, 313),
    Quoted("muvera", "MUVERA", "s10k", "re-rank 800", 0.992, 0.85, 0.64, 313),
    Quoted("fast_plaid", "fast-plaid", "s10k", "probe 1, 256 docs", 0.948, 0.540, 2.6, 81),
    Quoted("xtr_warp", "xtr-warp-rs", "s10k", "defaults", 0.700, 0.678, 0.42, 75),
    Quoted("xtr_warp", "xtr-warp-rs", "s10k", "nprobe 64", 0.745, 0.755, 2.4, 75),
    Quoted("warp", "WARP (original C++)", "s10k", "nprobe 32", 0.696, 0.652, 0.78, 73),
    Quoted("plaid", "PLAID (colbert-ai)", "real", "ncells 2", 0.855, None, 32 / 75.6),
    Quoted("plaid", "PLAID (colbert-ai)", "real", "ncells 8", 0.895, None, 134 / 75.6),
    Quoted("fast_plaid", "fast-plaid", "real", "probe 2", 0.86, None, 173 / 75.6),
    Quoted("fast_plaid", "fast-plaid", "real", "probe 8", 0.90, None, 690 / 75.6),
    Quoted("xtr_warp", "xtr-warp-rs", "real", "defaults", 0.34, None, 17 / 75.6),
    Quoted("xtr_warp", "xtr-warp-rs", "real", "nprobe 64", 0.475, None, 109 / 75.6),
    Quoted("warp", "WARP, exact re-rank of 1000", "real", "nprobe 8", 0.93, None, 22 / 75.6),
    Quoted("warp", "WARP, exact re-rank of 1000", "real", "nprobe 32", 0.97, None, 47 / 75.6),
)

TORCH = "its wheels are bound to one torch release, at most 2.11, which on PyPI is a CUDA build"
WHY = {
    "muvera": "not written here: it was slower than LEMUR and FAISS where it was measured",
    "fast_plaid": TORCH,
    "xtr_warp": TORCH,
    "warp": "not tried here",
}
