"""Switch off the telemetry of dependencies before any of them is loaded.

ONNX Runtime keeps a device id and a queue of events under ``~/.cache`` as soon as it loads; its own call that switches
them off comes too late to keep either from being written. A variable that the user has set is left as it is.
"""

from __future__ import annotations

import os

SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Variables that switch off the telemetry of the libraries that weft loads."""


def switch_off() -> None:
    """Switch off the telemetry of every library that may be loaded later."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
