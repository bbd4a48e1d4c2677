"""Text to token vectors: `Encoder`, its back ends, checkpoints of other projects, export, and splitting long texts."""

from weft.encoders.encoder import Encoder, Truncation

__all__ = ["Encoder", "Truncation"]
