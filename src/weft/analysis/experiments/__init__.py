"""The experiments, one file each, in the order of the papers."""

from __future__ import annotations

from weft.analysis.base import Experiment
from weft.analysis.experiments.adaptation import Adaptation
from weft.analysis.experiments.alignments import Alignments
from weft.analysis.experiments.flops import Flops
from weft.analysis.experiments.imputation import Imputation
from weft.analysis.experiments.k_prime import KPrime
from weft.analysis.experiments.k_train import KTrain
from weft.analysis.experiments.pruning import Pruning
from weft.analysis.experiments.score_density import ScoreDensity
from weft.analysis.experiments.token_ranks import GoldTokens, LexicalTokens
from weft.analysis.experiments.token_table import TokenTable
from weft.analysis.experiments.training_alignments import TrainingAlignments

_KINDS: tuple[type[Experiment], ...] = (
    Alignments,
    TrainingAlignments,
    Pruning,
    Adaptation,
    Imputation,
    KPrime,
    KTrain,
    GoldTokens,
    LexicalTokens,
    ScoreDensity,
    Flops,
    TokenTable,
)
EXPERIMENTS: dict[str, type[Experiment]] = {kind.name: kind for kind in _KINDS}
"""By name."""
