"""The formula rel(Q, D) = 1/Z · Σ S∘A and every alignment of the papers, on NumPy and on torch."""

from weft.alignment.base import Alignment, Pairs
from weft.alignment.differentiable import DifferentiableAlignment
from weft.alignment.gates import EntropyLPGate, Gate, HardGate, L1Gate, ReLUGate, salience
from weft.alignment.generative import Attention, DocumentToQuery
from weft.alignment.lp import entropy_lp
from weft.alignment.pairwise import ExactMatch, FirstKMax, SingleVector, SumOfMax, TopK, TopP
from weft.alignment.scoring import Aligned, align, aligned, evaluate, score
from weft.alignment.xtr import XTR, InBatchTokenRetrieval, register_imputation

parse = Alignment.parse

__all__ = [
    "XTR",
    "Aligned",
    "Alignment",
    "Attention",
    "DifferentiableAlignment",
    "DocumentToQuery",
    "EntropyLPGate",
    "ExactMatch",
    "FirstKMax",
    "Gate",
    "HardGate",
    "InBatchTokenRetrieval",
    "L1Gate",
    "Pairs",
    "ReLUGate",
    "SingleVector",
    "SumOfMax",
    "TopK",
    "TopP",
    "align",
    "aligned",
    "entropy_lp",
    "evaluate",
    "parse",
    "register_imputation",
    "salience",
    "score",
]
