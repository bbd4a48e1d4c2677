"""The alignment a model was trained for, kept beside its weights: an index of its vectors searches by it.

A model trained with Z = ΣA, or with saliences, ranks far worse under another alignment. ``weft train`` writes
``weft_alignment.json`` into the model's folder; `Encoder.alignment` reads it back, and a light folder keeps it among
its settings.
"""

from __future__ import annotations

import json
from pathlib import Path

from weft.alignment import Alignment, InBatchTokenRetrieval
from weft.errors import CheckpointError, WeftError

FILE = "weft_alignment.json"


def for_search(trained: Alignment | str) -> str:
    """Return what a model trained with an alignment searches by: the same, with Z; for XTR, eq. 4 instead of eq. 2.

    Examples
    --------
    >>> for_search("top-k:1"), for_search("xtr-in-batch:64")
    ('top-k:1', 'xtr')
    """
    parsed = Alignment.parse(trained)
    return "xtr" if isinstance(parsed, InBatchTokenRetrieval) else str(parsed)


def write_own_alignment(folder: str | Path, trained: Alignment | str, search: str = "") -> None:
    """Write into a model's folder the alignment that it was trained with, and the one to search by if that differs."""
    kept = {"trained": str(Alignment.parse(trained)), "search": for_search(search or trained)}
    (Path(folder) / FILE).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def read_own_alignment(folder: str | Path) -> str:
    """Return the alignment to search by for the model in a folder, "" if it names none."""
    path = Path(folder) / FILE
    try:
        return str(Alignment.parse(str(json.loads(path.read_text(encoding="utf-8"))["search"])))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, WeftError) as error:
        raise CheckpointError(f"{path} does not name an alignment: {' '.join(str(error).split())}") from None
