"""PyLate's shapes over weft: a script written for PyLate changes one import.

>>> from weft.integrations.pylate import indexes, models, rank, retrieve  # instead of: from pylate import …

PyLate itself is not needed, nor torch with a light model. Where it is installed, its models and retrievers take these
indexes too. What differs: adding an id again replaces the document, scores of negative similarities are not cut off at
zero by padding, and parameters that tune PyLate's own engines have no effect.
"""

from weft.integrations.pylate import indexes, models, rank, retrieve

__all__ = ["indexes", "models", "rank", "retrieve"]
