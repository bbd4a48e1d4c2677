"""How much of each fault the long tests do, and where they note how much it was.

`make test-reliability` runs them; an environment variable gives another number, `WEFT_KILLS=100` say.
"""

import json
import os
import time
from typing import Any


def _amount(name: str, usual: int) -> int:
    return int(os.environ.get(f"WEFT_{name}", usual))


KILLS = _amount("KILLS", 1000)
CUTS = _amount("CUTS", 480)
FAULT_SEEDS = _amount("FAULT_SEEDS", 3)
"""Workloads in which every n-th call fails."""
MODEL_OPERATIONS = _amount("MODEL_OPERATIONS", 200_000)
READING_SECONDS = _amount("READING_SECONDS", 60)
SOAK_SECONDS = _amount("SOAK_SECONDS", 1800)


def note(what: str, **figures: Any) -> None:
    """Append what a test has done to the file that `WEFT_TALLY` names, if it names one."""
    if path := os.environ.get("WEFT_TALLY"):
        with open(path, "a") as file:
            file.write(json.dumps({"what": what, "at": time.strftime("%H:%M:%S"), **figures}) + "\n")
