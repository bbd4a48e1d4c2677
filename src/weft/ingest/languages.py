"""Passages in languages that the model of an index does not read: noted with each, counted for the whole index."""

from __future__ import annotations

from weft.encoders import Encoder
from weft.encoders.languages import other_language
from weft.search import Index
from weft.storage.families import NOTES

_SETTING = "other_languages"
_PATH = f"$.{NOTES}.language"


def language_note(text: str, encoder: Encoder) -> dict[str, str]:
    """Return what to note about the language of a passage: nothing if the model reads it, or if it is not evident."""
    found = other_language(text, encoder.languages)
    return {} if found is None else {"language": found}


def remember_other_languages(index: Index) -> None:
    """Record that some passages have such a note, so that an index without any need not be searched for them."""
    with index.reading_catalogue() as catalogue:
        known = _SETTING in catalogue.settings()
    if not known:
        with index.committing() as catalogue:
            catalogue.set(_SETTING, True)


def other_languages(index: Index) -> dict[str, int]:
    """Return how many passages are in languages that the model does not read, by code, the most common first."""
    with index.reading_catalogue() as catalogue:
        return dict(catalogue.metadata_counts(_PATH)) if _SETTING in catalogue.settings() else {}
