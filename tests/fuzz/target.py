"""What all fuzz targets share."""

REFUSED, SAME, OTHER = "refused", "same", "other"


class Target:
    """What all targets share."""

    def close(self):
        """Let go of what is open."""
