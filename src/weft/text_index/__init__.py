"""`TextIndex`: an index with its encoder. Texts in, answers and their reasons out."""

from weft.text_index.facade import Match, TextIndex
from weft.text_index.opening import is_index, is_taken

__all__ = ["Match", "TextIndex", "is_index", "is_taken"]
