"""How tokens of large segments are stored: one codec a file."""

from __future__ import annotations

from weft.storage.arrays import Arrays
from weft.storage.codecs.base import Codec
from weft.storage.codecs.byte import ByteCodec
from weft.storage.codecs.residual import ResidualCodec

CODECS: dict[int, Codec] = {8: ByteCodec(), 4: ResidualCodec(4), 2: ResidualCodec(2)}
"""By bits a coordinate, as `Index.create` names them."""


def codec_of(stored: Arrays) -> Codec | None:
    """Return the codec that wrote a segment; None if it is flat."""
    return next((codec for codec in CODECS.values() if codec.matches(stored)), None)
