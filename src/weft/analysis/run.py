"""Running experiments by name, and keeping what they found."""

from __future__ import annotations

import logging
import platform
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from weft.analysis import report
from weft.analysis.base import Experiment, NeedsError
from weft.analysis.experiments import EXPERIMENTS
from weft.analysis.lab import Lab, Options

logger = logging.getLogger(__name__)


def find(name: str) -> type[Experiment]:
    """Return the experiment of a name."""
    if name not in EXPERIMENTS:
        raise NeedsError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}, and all")
    return EXPERIMENTS[name]


def run(experiment: Experiment, lab: Lab, output: Path, *, command: str = "") -> Path:
    """Make an experiment, write ``output/NAME`` and return its report."""
    began = time.perf_counter()
    logger.info("%s", experiment.name)
    lab.begin()
    outcome = experiment.run(lab)
    config = describe(experiment, lab, command) | {"seconds": round(time.perf_counter() - began, 1)}
    return report.write(output / experiment.name, experiment, outcome, config)


def run_all(options: Options, output: Path, *, command: str = "") -> list[tuple[type[Experiment], Path | None, str]]:
    """Make all experiments over one lab, and a page of links; leave out those that lack something."""
    lab = Lab(options)
    done: list[tuple[type[Experiment], Path | None, str]] = []
    for kind in EXPERIMENTS.values():
        try:
            page = run(kind.make(quick=options.quick), lab, output, command=command)
            done.append((kind, page.relative_to(output), ""))
        except NeedsError as error:
            logger.warning("%s is left out: %s", kind.name, error)
            done.append((kind, None, str(error)))
    (output / "index.html").write_text(report.contents(done, options.quick), encoding="utf-8")
    return done


def describe(experiment: Experiment, lab: Lab, command: str) -> dict[str, Any]:
    """Return everything that is needed to repeat a run."""
    options = lab.options
    return {
        "experiment": experiment.name,
        "command": command,
        "quick": options.quick,
        "settings": asdict(experiment),
        "models": [_model(model) for model in lab.used.values()],
        "collections": [
            {
                "name": pool.name,
                "documents": len(pool.documents),
                "queries": len(pool.queries),
                "whole": pool.whole,
                "digest": pool.digest,
            }
            for pool in lab.used_pools.values()
        ],
        "document_length": options.length,
        "seed": options.seed,
        "versions": {name: version(name) for name in ("weft-search", "numpy")} | {"python": platform.python_version()},
    }


def _model(model: Any) -> dict[str, Any]:
    encoder = model.encoder
    return {
        "name": model.name,
        "fingerprint": encoder.fingerprint,
        "dim": encoder.dim,
        "salience": encoder.has_salience,
        "trained_with": model.recipe.get("loss", {}).get("alignment"),
    }


def listing() -> list[type[Experiment]]:
    """Return all experiments."""
    return list(EXPERIMENTS.values())
