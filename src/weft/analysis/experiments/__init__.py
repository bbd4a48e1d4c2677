"""The experiments, one file each, in the order of the papers."""

from __future__ import annotations

from weft.analysis.base import Experiment
from weft.analysis.experiments.adaptation import Adaptation
from weft.analysis.experiments.alignment_map import AlignmentMap
from weft.analysis.experiments.alignments import Alignments
from weft.analysis.experiments.differentiable import Differentiable
from weft.analysis.experiments.exact_match import ExactMatch
from weft.analysis.experiments.flops import Flops
from weft.analysis.experiments.gr_encodings import GREncodings
from weft.analysis.experiments.gr_rerank import GRRerank
from weft.analysis.experiments.imputation import Imputation
from weft.analysis.experiments.k_prime import KPrime
from weft.analysis.experiments.k_train import KTrain
from weft.analysis.experiments.kernel import KernelExperiment
from weft.analysis.experiments.low_rank import LowRankExperiment
from weft.analysis.experiments.model_sizes import ModelSizes
from weft.analysis.experiments.pruning import Pruning
from weft.analysis.experiments.retrieved_tokens import RetrievedTokens
from weft.analysis.experiments.score_density import ScoreDensity
from weft.analysis.experiments.token_ranks import GoldTokens, LexicalTokens
from weft.analysis.experiments.token_table import TokenTable
from weft.analysis.experiments.training_alignments import TrainingAlignments

_KINDS: tuple[type[Experiment], ...] = (
    Alignments,
    TrainingAlignments,
    Differentiable,
    Pruning,
    RetrievedTokens,
    Adaptation,
    ModelSizes,
    Imputation,
    KPrime,
    KTrain,
    GoldTokens,
    LexicalTokens,
    ScoreDensity,
    Flops,
    TokenTable,
    GRRerank,
    GREncodings,
    ExactMatch,
    LowRankExperiment,
    KernelExperiment,
    AlignmentMap,
)
EXPERIMENTS: dict[str, type[Experiment]] = {kind.name: kind for kind in _KINDS}
"""By name."""
