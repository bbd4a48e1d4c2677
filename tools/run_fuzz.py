"""Random inputs for a boundary of weft: `python tools/run_fuzz.py segments --inputs 1000000`, or `--seconds 60`.

Input i of a seed is always the same, so `--first i --inputs 1` does a find again. Targets are in tests/fuzz/targets.py.
"""

import argparse
import collections
import json
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fuzz.targets import TARGETS, prepare

MOST_FINDS = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    prepare()
    shm = Path("/dev/shm")
    begun, counts, finds = time.monotonic(), collections.Counter[str](), 0
    done = options.first
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-", dir=shm if shm.is_dir() else None) as folder:
        target = TARGETS[options.target](Path(folder))
        while done < options.first + options.inputs and time.monotonic() - begun < options.seconds:
            try:
                counts[target.attempt(random.Random(f"{options.seed} {done}"))] += 1
            except KeyboardInterrupt:
                break
            except Exception:
                finds += 1
                print(f"--first {done} --seed {options.seed}:\n{traceback.format_exc()}", file=sys.stderr)
                if finds == MOST_FINDS:
                    break
            done += 1
        figures = {
            "target": options.target, "inputs": done - options.first, "seed": options.seed, "finds": finds,
            "outcomes": counts, "seconds": round(time.monotonic() - begun),
        }  # fmt: skip
        print(json.dumps(figures), flush=True)
        target.close()
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
