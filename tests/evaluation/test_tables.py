"""Tables in every form."""

import csv
import io
import json
import xml.etree.ElementTree as ET

from weft.evaluation.significance import Interval
from weft.evaluation.tables import Table, page

TABLE = Table(
    "t",
    "A | B",
    ["", "x|y", "n"],
    [["first <b>", Interval(0.5, 0.4, 0.6), 3], ["second", Interval(0.7, float("nan"), float("nan")), None]],
    best="columns",
    note="a & b",
)


def test_markdown():
    assert TABLE.markdown().splitlines() == [
        "|  | x\\|y | n |",
        "| --- | ---: | ---: |",
        "| first <b> | 0.500 ±0.100 | 3 |",
        "| second | **0.700** | – |",
    ]


def test_csv():
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows == [
        ["", "x|y", "x|y low", "x|y high", "n"],
        ["first <b>", "0.5", "0.4", "0.6", "3"],
        ["second", "0.7", "", "", ""],
    ]


def test_html():
    root = ET.fromstring(TABLE.html())
    cells = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    assert cells == [["", "x|y", "n"], ["first <b>", "0.500 ±0.100", "3"], ["second", "0.700", "–"]]
    whole = page([TABLE], "<title>")
    assert "&lt;title&gt;" in whole
    assert "a &amp; b" in whole


def test_json():
    rows = json.loads(json.dumps(TABLE.data(), allow_nan=False))["rows"]
    assert rows[0]["x|y"] == {"value": 0.5, "low": 0.4, "high": 0.6}
    assert rows[1]["x|y"] == {"value": 0.7, "low": None, "high": None}
