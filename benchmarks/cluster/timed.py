"""`weft` with a clock: the CPU seconds of its searches, without the server around them, go into the file WEFT_TIMED."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from weft.cli.main import main
from weft.search import Index
from weft.serving import parts

spent = np.memmap(os.environ["WEFT_TIMED"], np.float64, "w+", shape=(1,))


def timed(search: Callable[..., Any]) -> Callable[..., Any]:
    """Count the CPU of a function's thread."""

    @wraps(search)
    def counting(*arguments: Any, **options: Any) -> Any:
        before = time.thread_time()
        try:
            return search(*arguments, **options)
        finally:
            spent[0] += time.thread_time() - before

    return counting


Index.search = timed(Index.search)  # type: ignore[method-assign]
parts.retrieve_part = timed(parts.retrieve_part)

if __name__ == "__main__":
    sys.exit(main())
