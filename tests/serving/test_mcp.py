"""The tools, called by the SDK's own client over a real process."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("mcp", reason="needs the mcp extra: pip install 'weft-search[mcp]'")

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

QUERY = "Why do aeroplane windows have round corners?"


def over_stdio(built):
    return StdioServerParameters(command=sys.executable, args=["-m", "weft", "mcp", str(built)])


def ask(target, *calls):
    """Call tools one after the other; return the tools that are offered, and the results."""

    async def talk():
        async with Client(target) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(talk)


def test_an_assistant_searches_reads_and_asks_why(built, texts):
    tools, (found, listed, document, why) = ask(
        over_stdio(built),
        ("search", {"query": QUERY, "k": 2}),
        ("list_indexes", {}),
        ("get_document", {"id": "long"}),
        ("explain", {"query": QUERY, "id": "transport-cabin-pressure"}),
    )
    assert {tool.name for tool in tools} == {"search", "get_document", "explain", "list_indexes"}
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools)
    results = found.structured_content["results"]
    assert [one["id"] for one in results] == [match.id for match in texts.search(QUERY, 2)]
    assert "**windows**" in results[0]["snippet"]
    assert len(results[0]["snippet"]) < 600
    (index,) = listed.structured_content["indexes"]
    assert (index["name"], index["passages"]) == ("notes", len(texts))
    assert "subject" in index["fields"]
    assert document.structured_content["text"].startswith("Chapter 0")
    assert document.structured_content["characters"] > 5000
    pairs = {(pair["query"], pair["document"]) for pair in why.structured_content["pairs"]}
    assert ("windows", "windows") in pairs
    assert ("round", "rounded") in pairs


def test_long_documents_come_in_parts(built, texts, monkeypatch):
    from weft.serving import tools

    monkeypatch.setattr(tools, "PAGE", 1000)
    served = tools.Tools({"notes": texts})
    text, offset = "", 0
    while offset is not None:
        part = served.get_document("long", offset=offset)
        text, offset = text + part["text"], part["next_offset"]
    assert text == "\n\n".join(passage.text for passage in texts.family("long"))


def test_mistakes_are_told_so_that_an_assistant_can_correct_them(built):
    _, answers = ask(
        over_stdio(built),
        ("search", {"query": " "}),
        ("search", {"query": "a", "filter": "year =="}),
        ("search", {"query": "a", "index": "other"}),
        ("search", {"query": "a", "k": 1000}),
        ("get_document", {"id": "no such"}),
        ("explain", {"query": "a", "id": "no such"}),
    )
    assert all(answer.is_error for answer in answers)
    said = [answer.content[0].text for answer in answers]
    for text, words in zip(said, ("empty", "bad filter", "notes", "50", "no such", "no such"), strict=True):
        assert words in text
    assert not any(str(built.parent) in text for text in said)


def test_streamable_http(built):
    command = [sys.executable, "-m", "weft", "mcp", str(built), "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = next(found.group(1) for line in process.stderr if (found := re.search(r"(http://\S+/mcp)", line)))
            _, (found,) = ask(url, ("search", {"query": QUERY, "k": 1}))
            assert found.structured_content["results"][0]["id"] == "transport-cabin-pressure"
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_other_machines_are_not_let_in(built, capsys):
    from weft.cli.main import main

    assert main(["mcp", str(built), "--http", "--host", "0.0.0.0"]) == 1
    assert "has no keys" in capsys.readouterr().err
