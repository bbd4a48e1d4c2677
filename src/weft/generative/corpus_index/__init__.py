"""The corpus as a text of tokens: which tokens follow an n-gram, how often, and in which documents.

Two forms of one interface, `NGramIndex`: `TokenTextIndex`, a suffix array, fast; `FMIndex`, a wavelet matrix, small.
"""

from weft.generative.corpus_index.base import Continuations, NGramIndex, Occurrences, States
from weft.generative.corpus_index.fm import FMIndex
from weft.generative.corpus_index.ngrams import NGrams
from weft.generative.corpus_index.suffix import TokenTextIndex

__all__ = ["Continuations", "FMIndex", "NGramIndex", "NGrams", "Occurrences", "States", "TokenTextIndex"]
