"""`weft serve` and `weft mcp` in a fresh home: they write nothing but the index, and connect to nobody."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

WRITES = re.compile(r'^\d+ +openat\([^"]*"([^"]+)", [^)]*\b(?:O_WRONLY|O_RDWR|O_CREAT)\b[^)]*\) = \d+', re.MULTILINE)
HARMLESS = ("/dev/", "/proc/")
QUERY = "moon telescope"

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


class Traced:
    """How to run a verb in a home of its own, with every file that it opens for writing and every connection noted."""

    def __init__(self, folder, *arguments):
        self.home, self.trace, self.temporary = folder / "home", folder / "trace", folder / "tmp"
        for made in (folder, self.home, self.temporary):
            made.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        self.environment = {
            **kept, "HOME": str(self.home), "TMPDIR": str(self.temporary), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        self.command = ["strace", "-f", "-qq", "-o", str(self.trace), "-e", "trace=connect,openat"]
        self.command += [sys.executable, "-m", "weft", *map(str, arguments)]

    def check(self, index):
        """Nothing in the home or in /tmp, nothing outside the index, nobody asked."""
        said = self.trace.read_text()
        written = {Path(name) for name in WRITES.findall(said) if not name.startswith(HARMLESS)}
        assert any(path.is_relative_to(index) for path in written), "the trace says nothing"
        assert {path for path in written if not path.is_relative_to(index)} == set()
        assert [path for path in (*self.home.rglob("*"), *self.temporary.rglob("*")) if path.is_file()] == []
        assert re.findall(r"connect\(.*AF_INET.*", said) == []


def test_serving(index, tmp_path):
    traced = Traced(tmp_path / "traced", "serve", index, "--port", "0")
    process = subprocess.Popen(traced.command, env=traced.environment, stderr=subprocess.PIPE, text=True)
    line = next(line for line in process.stderr if "serving" in line)
    with httpx2.Client(base_url=re.search(r"http://\S+", line).group(), timeout=60) as http:
        path = "/v1/indexes/notes"
        assert http.get("/").status_code == 200
        assert http.post(f"{path}/search", json={"query": QUERY}).json()["results"][0]["hits"]
        assert http.post(f"{path}/explain", json={"query": QUERY}).json()["explanations"]
        added = http.post(f"{path}/documents", json={"documents": [{"id": "new", "text": "A new lens."}]})
        assert added.status_code == 200, added.text
        assert http.get("/metrics").status_code == 200
    child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
    os.kill(int(child), signal.SIGTERM)
    process.communicate(timeout=60)
    traced.check(index)


@pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs the mcp extra")
def test_tools_for_assistants(index, tmp_path):
    from mcp.client.stdio import StdioServerParameters

    from serving.test_mcp import ask

    traced = Traced(tmp_path / "traced", "mcp", index)
    _, (found, why) = ask(
        StdioServerParameters(command=traced.command[0], args=traced.command[1:], env=traced.environment),
        ("search", {"query": QUERY}),
        ("explain", {"query": QUERY, "id": "long"}),
    )
    assert found.structured_content["results"]
    assert not why.is_error
    traced.check(index)
