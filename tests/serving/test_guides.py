"""The guides are true: their code runs against a server, their tables name every route and refusal, units are sound."""

import configparser
import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.serving import routes
from weft.serving.limits import MEGABYTE, Limits
from weft.serving.problems import TITLES

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore")  # of Cohere's client's own making
def test_code_of_the_guide_runs(start, index, capsys):
    server = start(index)
    assert len(BLOCKS) == 3
    for block in BLOCKS:
        names = {}
        exec(compile(block.replace("http://127.0.0.1:8080", server.url), "docs/guides/serving.md", "exec"), names)
        if "cohere" in names:  # its client has no close
            names["client"]._client_wrapper.httpx_client.httpx_client.close()
    said = capsys.readouterr().out
    assert "mars: [" in said
    assert said.endswith("1\n")


def test_the_guide_has_every_route():
    table = GUIDE.partition("| request |")[2].partition("\n\n")[0].replace("…/{name}", "/v1/indexes/{name}")
    for _, path, _, _ in routes.listed(Limits()):
        assert path.replace("{id:path}", "{id}") in table, path


def test_limits_has_every_refusal_and_bound():
    page = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
    table = page.partition("| status |")[2].partition("\n\n")[0]
    assert sorted(set(TITLES) - {500}) == sorted({int(number) for number in re.findall(r"\b[45]\d\d\b", table)})
    server = page.partition("## A server\n")[2].partition("\n## ")[0]
    bounds = {name: value for name, value in dataclasses.asdict(Limits()).items() if value}
    written = {name: f"{value:,.0f}" for name, value in bounds.items()}
    written["body"] = f"{bounds['body'] // MEGABYTE} MiB"
    assert [name for name, value in written.items() if not re.search(rf"\b{value}\b", server)] == []


def test_the_unit_is_one_that_systemd_reads(tmp_path):
    unit = ROOT / "deploy" / "weft.service"
    read = configparser.ConfigParser(strict=True, interpolation=None, comment_prefixes="#")
    read.optionxform = str
    read.read_string(unit.read_text(encoding="utf-8"))
    assert read["Service"]["NoNewPrivileges"] == "yes"
    assert " serve " in read["Service"]["ExecStart"]
    if shutil.which("systemd-analyze") is None:
        return
    text = unit.read_text(encoding="utf-8").replace("/opt/weft/bin/weft", "/bin/true").replace("User=weft\n", "")
    (tmp_path / "weft.service").write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(tmp_path / "weft.service")], capture_output=True, text=True)
    assert "weft.service:" not in done.stderr, done.stderr


def test_the_containerfile_says_only_what_builders_know():
    text = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", text).splitlines()
    known = {"FROM", "RUN", "COPY", "USER", "WORKDIR", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    used = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    assert set(used) <= known
    assert text.count("USER 10001") == 1
    assert "0.0.0.0" in text
    assert "WEFT_KEYS" in text
