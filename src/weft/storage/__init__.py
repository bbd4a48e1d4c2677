"""The index on disk: catalogue, segments, writing, checking."""
