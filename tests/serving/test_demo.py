"""``weft demo --serve``: the page on the demo collection."""

import sys

from serving.conftest import Running


def test_the_demo_is_served(tmp_path):
    place = str(tmp_path / "demo.weft")
    server = Running([sys.executable, "-m", "weft", "demo", place, "--serve", "--port", "0"])
    try:
        assert "<!doctype html>" in server.http.get("/").text
        answer = server.post("/v1/indexes/demo/search", {"query": "why do windows have round corners", "k": 1})
        assert answer.json()["results"][0]["hits"][0]["id"] == "transport-cabin-pressure"
    finally:
        code, _ = server.stop()
    assert code == 0
