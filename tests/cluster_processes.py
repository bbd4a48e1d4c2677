"""Processes of `weft` that serve, for the tests of clusters."""

import os
import re
import signal
import subprocess
import sys

import pytest


class Running:
    """A process of `weft …` that serves; `url` is where it listens."""

    def __init__(self, *arguments, **environment):
        self.arguments, self.environment = arguments, environment
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft", *map(str, arguments)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line.decode())
            found = re.search(r"serving .*at (http://\S+)", self.lines[-1])
            if found:
                self.url = found.group(1)
                return
        self.process.stderr.close()
        self.process.wait()
        pytest.fail(f"the server did not start: {''.join(self.lines)}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=60)
        self.process.stderr.close()
