"""Text to token vectors: `Encoder`, its back ends, checkpoints of other projects, export, and splitting long texts."""

from weft.encoders.encoded import EncodedTexts, Truncation
from weft.encoders.encoder import Encoder
from weft.encoders.splitter import Passage, parent_id, split_document, split_passages, split_text

__all__ = [
    "EncodedTexts",
    "Encoder",
    "Passage",
    "Truncation",
    "parent_id",
    "split_document",
    "split_passages",
    "split_text",
]
