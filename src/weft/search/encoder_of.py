"""The encoder that belongs to an index."""

from __future__ import annotations

from weft.encoders import Encoder
from weft.encoders.query_towers import FULL
from weft.errors import CheckpointError, IndexFormatError
from weft.search.index import Index


def load_encoder(index: Index, model: str | None = None, query: str = FULL) -> Encoder:
    """Load the encoder of an index: the one named, else the one it remembers, else the bundled one.

    `query` names what encodes queries, as for `Encoder.load`. A model that only the index names is looked for on this
    machine and never fetched: an index may come from anyone.
    """
    try:
        encoder = Encoder.load(model or index.model or None, local_files_only=not model, query=query)
    except CheckpointError as error:
        if model or query != FULL:
            raise
        raise CheckpointError(f"the model of the index at {index.folder}: {error}; say where it is (--model)") from None
    check_encoder(index, encoder)
    return encoder


def check_encoder(index: Index, encoder: Encoder) -> None:
    """Refuse an encoder whose vectors are not those of the index."""
    if encoder.dim != index.dim or (index.encoder_fingerprint and encoder.fingerprint != index.encoder_fingerprint):
        was = f"the model {index.model}" if index.model else "another model"
        why = f"{encoder.dim} dimensions, not {index.dim}" if encoder.dim != index.dim else "other vectors"
        raise IndexFormatError(
            f"the index at {index.folder} was made with {was}; {encoder.name} has {why}: name the right one (--model)"
        )
