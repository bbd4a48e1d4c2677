"""``weft search`` and ``weft explain`` as a person runs them, with a tiny model and without torch."""

import dataclasses
import functools
import io
import json

import pytest

import weft
from encoders import light_models
from weft.encoders.light import LightBackend
from weft.errors import DataError
from weft.search.lexical import search_lexical
from weft.sources.queries import read_query_file

QUERY = "red planet"


@pytest.fixture
def asked(indexed, run, monkeypatch):
    """The answer to a query, as JSON."""

    def asked(*arguments):
        code, out, err = run("search", "n.weft", QUERY, "--json", *arguments)
        assert (code, err) == (0, "")
        return json.loads(out)

    return asked


def by_hand(model, **options):
    """The same search in Python."""
    with weft.Index.open("n.weft") as index:
        return index.search(weft.Encoder.load(model).encode_query([QUERY]), **options)[0]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        (["-k", "1"], {"k": 1}),
        (["--alignment", "top-k:2", "--exact"], {"alignment": "top-k:2", "exact": True}),
        (["-a", "xtr:3"], {"alignment": "xtr:3"}),
        (["--filter", '@id != "notes/dog.txt"'], {"filter": '@id != "notes/dog.txt"'}),
        (["--beta-q", "0.5"], {"beta_q": 0.5}),
    ],
)
def test_json_is_what_python_finds(asked, model, arguments, options):
    found = asked(*arguments)
    expected = by_hand(model, **options)
    assert [row["id"] for row in found["results"]] == list(expected.ids)
    assert [row["score"] for row in found["results"]] == pytest.approx(expected.scores.tolist())
    assert [row["rank"] for row in found["results"]] == list(range(1, len(expected) + 1))
    assert (found["schema"], found["query"], found["query_id"]) == ("weft.search/1", QUERY, "1")
    assert found["results"][0]["text"]
    assert not any(key.startswith("weft") for row in found["results"] for key in row["metadata"])


def test_hybrid(asked, model):
    plain, fused = asked(), asked("--hybrid", "--fusion", "scores")
    assert fused["fusion"] == "scores"
    assert plain["fusion"] is None
    with weft.Index.open("n.weft") as index:
        lexical = search_lexical(index, QUERY)
    assert lexical.ids[0] in [row["id"] for row in fused["results"]]
    first = asked("--hybrid", "--fusion", "rrf")["results"][0]
    ranks = [list(r.ids).index(first["id"]) for r in (by_hand(model), lexical) if first["id"] in r.ids]
    assert first["score"] == pytest.approx(sum(1 / (61 + rank) for rank in ranks), rel=1e-5)


def test_weights_of_a_hybrid_search(asked, run):
    with weft.Index.open("n.weft") as index:
        lexical = search_lexical(index, QUERY)
    by_words = asked("--hybrid", "--weights", "0", "1")["results"]
    assert [row["id"] for row in by_words][: len(lexical)] == list(lexical.ids)
    assert by_words[0]["parts"]["vectors"] == 0
    for arguments, wrong in (
        (["--weights", "1", "1"], "--weights without --hybrid"),
        (["--hybrid", "--weights", "1", "-1"], "numbers >= 0"),
        (["--hybrid", "--weights", "1e308", "1e308"], "<= 1e+06"),
    ):
        code, out, err = run("search", "n.weft", QUERY, *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert wrong in err


def test_any_number_of_documents(asked, run):
    assert asked("-k", str(2**31 - 1))["results"]
    code, out, err = run("search", "n.weft", QUERY, "-k", str(2**63))
    assert (code, out) == (1, "")
    assert err == f"weft: The 'k' parameter of search must be at most {2**31 - 1}. Got {2**63} instead.\n"


def test_pretty_tsv_and_trec(indexed, run, model):
    expected = by_hand(model)
    code, out, err = run("search", "n.weft", QUERY)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert out.lstrip().startswith(f"1. {expected.ids[0]}  {expected.scores[0]:.4f}")
    assert "the lazy dog" in out
    _, out, _ = run("search", "n.weft", QUERY, "--tsv")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[:3] for row in rows] == [["1", name, str(rank)] for rank, name in enumerate(expected.ids, 1)]
    _, out, _ = run("search", "n.weft", QUERY, "--trec", "--tag", "mine")
    assert out.splitlines()[0] == f"1 Q0 {expected.ids[0]} 1 {expected.scores[0]:.6f} mine"


def test_many_queries(indexed, run, tmp_path):
    (tmp_path / "q.tsv").write_text("a\tred planet\nb\tlazy dog\n")
    _, out, _ = run("search", "n.weft", "--queries", "q.tsv", "--trec", "-k", "2")
    assert [line.split()[0] for line in out.splitlines()] == ["a", "a", "b", "b"]
    _, out, _ = run("search", "n.weft", "--queries", "q.tsv", "--json", "-k", "2")
    assert [json.loads(line)["query_id"] for line in out.splitlines()] == ["a", "b"]
    _, single, _ = run("search", "n.weft", "lazy dog", "--json", "-k", "2")
    assert json.loads(out.splitlines()[1])["results"] == json.loads(single)["results"]
    _, out, _ = run("search", "n.weft", "--queries", "q.tsv")
    assert "b  lazy dog" in out


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("q.txt", "one\n\n two \n", [("1", "one"), ("3", "two")]),
        ("q.tsv", "a\tone two\r\nb\tthree\n", [("a", "one two"), ("b", "three")]),
        ("q.jsonl", '{"_id": "x", "text": "one"}\n{"query": "two"}\n', [("x", "one"), ("2", "two")]),
        ("q.jsonl", '\ufeff{"qid": 7, "query": "é"}', [("7", "é")]),
    ],
)
def test_files_of_queries(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert [tuple(query) for query in read_query_file(tmp_path / name)] == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("q.txt", "\n", "no queries in"),
        ("q.tsv", "a one\n", "line 1: not an id, a tab and a query"),
        ("q.tsv", "a\tone\na\ttwo\n", "two queries have the id 'a'"),
        ("q.jsonl", "{", "line 1: not JSON"),
        ("q.jsonl", "[]", "not a JSON object"),
        ("q.jsonl", '{"a":' * 5000 + "1" + "}" * 5000, "line 1: not JSON"),
        ("q.jsonl", '{"id": 1%s}' % ("0" * 5000), "line 1: not JSON"),
        ("q.txt", "fox\n" + "a" * (2**20 + 1), "line 2 of the queries is longer than 1 MB"),
        ("q.jsonl", '{"id": 1}', "no query in the fields text or query"),
    ],
)
def test_bad_files_of_queries(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        read_query_file(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        read_query_file(tmp_path / name)


@pytest.mark.parametrize("alignment", ["sum-of-max", "top-k:2", "xtr:2", "da:2"])
def test_explanations_sum_to_the_score(indexed, run, asked, alignment):
    best = asked("--alignment", alignment)["results"][0]
    code, out, err = run("explain", "n.weft", QUERY, "--alignment", alignment, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["id"], found["rank"]) == (best["id"], 1)
    assert found["score"] == pytest.approx(best["score"])
    assert sum(pair["contribution"] for pair in found["pairs"]) == pytest.approx(best["score"], rel=1e-4)
    spans = [token["span"] for token in found["document"]["tokens"] if token["span"]]
    assert spans
    assert all(found["document"]["text"][a:b].strip() for a, b in spans)


def test_a_document_of_my_choice(indexed, run, asked):
    _, out, _ = run("explain", "n.weft", QUERY, "--doc", "notes/dog.txt", "--json")
    found = json.loads(out)
    score = {row["id"]: row["score"] for row in asked()["results"]}["notes/dog.txt"]
    assert found["score"] == pytest.approx(score)
    # A document that was split: its best passage.
    _, out, _ = run("explain", "n.weft", QUERY, "--doc", "notes/mars.txt", "--json")
    assert json.loads(out)["id"].startswith("notes/mars.txt#")


def test_terminal_and_page(indexed, run, tmp_path):
    code, out, err = run("explain", "n.weft", QUERY, "-k", "2")
    assert (code, err) == (0, "")
    assert "the score" in out
    assert "1. " in out
    assert "2. " in out
    code, out, err = run("explain", "n.weft", QUERY, "--html", "page.html")
    assert (code, out, err) == (0, "", "wrote page.html\n")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


@pytest.fixture
def another_model(tmp_path):
    return str(light_models.write(tmp_path / "other", dataclasses.replace(light_models.SETTINGS, fingerprint="other")))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["search", "none.weft", "x"], "no such index: none.weft"),
        (["explain", "none.weft", "x"], "no such index: none.weft"),
        (["search", "notes", "x"], "no index at notes"),
        (["search", "notes/dog.txt", "x"], "is not an index"),
        (["search", "n.weft", "x", "--filter", "year >="], "bad filter"),
        (["search", "n.weft", "x", "--alignment", "maxx"], "'maxx'"),
        (["search", "n.weft", "x", "--alignment", "xtr-in-batch:3"], "xtr-in-batch is for training"),
        (["search", "n.weft", " "], "the query is empty"),
        (["search", "n.weft"], "no query: give one"),
        (["search", "n.weft", "x", "--queries", "q.txt"], "choose one"),
        (["search", "n.weft", "--queries", "q.txt"], "no such file of queries: q.txt"),
        (["search", "n.weft", "x", "--json", "--tsv"], "choose one"),
        (["search", "n.weft", "x", "--trec", "--tag", "a b"], "'a b' has spaces"),
        (["search", "n.weft", "x", "--model", "nowhere/at/all"], "there is no folder nowhere/at/all"),
        (["search", "n.weft", "x", "--model", "OTHER"], "was made with the model"),
        (["explain", "n.weft", "x", "--doc", "nothing"], "no document 'nothing' in n.weft"),
        (["explain", "n.weft", "x", "--filter", "("], "bad filter"),
        (["explain", "n.weft", "x", "--alignment", "top-k:0"], "'k'"),
        (["explain", "n.weft", "x", "--model", "OTHER"], "was made with the model"),
        (["explain", "n.weft", "x", "--html", "none/page.html"], "none/page.html"),
    ],
)
def test_mistakes_are_one_line(indexed, run, another_model, arguments, said):
    code, out, err = run(*(another_model if a == "OTHER" else a for a in arguments))
    assert (code, out) == (1, "")
    assert said in err
    assert err.startswith("weft: ")
    assert err.count("\n") == 1


def test_a_document_that_xtr_did_not_retrieve(indexed, run, asked):
    retrieved = {row["id"] for row in asked("--alignment", "xtr:1")["results"]}
    left = sorted({row["id"] for row in asked()["results"]} - retrieved)
    assert left
    code, _, err = run("explain", "n.weft", QUERY, "--doc", left[0], "--alignment", "xtr:1")
    assert (code, err.count("\n")) == (1, 1)
    assert f"{left[0]!r} has no score under xtr:1: no query token retrieved one of its tokens" in err


def test_arguments_that_are_no_text(indexed, run, monkeypatch):
    code, out, err = run("search", "n.weft", "red \udcff planet", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["query"] == "red ? planet"
    assert run("explain", "n.weft", "x", "--doc", "\udcff")[0] == 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    code, out, err = run("search", "n.weft", "--queries", "-")
    assert (code, out) == (1, "")
    assert "not UTF-8" in err


def test_nothing_is_found_in_an_empty_filter(indexed, run):
    said = "weft: no document has the field nowhere\n"
    assert run("search", "n.weft", "x", "--filter", "nowhere") == (
        0,
        "nothing found\n",
        said,
    )
    assert run("explain", "n.weft", "x", "--filter", "nowhere") == (0, "nothing found\n", "")
    assert run("search", "n.weft", "x", "--filter", "nowhere", "--tsv") == (0, "", said)


@pytest.mark.parametrize("beta_d", [None, 0.5])
@pytest.mark.parametrize("weighs", [True, False])
@pytest.mark.parametrize("arguments", [["search"], ["search", "--json"], ["search", "--hybrid"], ["explain", "-k", 10]])
def test_the_model_runs_for_the_query_and_nothing_else(notes, run, monkeypatch, tmp_path, arguments, weighs, beta_d):
    settings = dataclasses.replace(light_models.SETTINGS, salience_weighs=weighs)
    for n in range(12):
        (notes / f"{n}.txt").write_text(f"the red planet and {n} quick brown foxes")
    options = [] if beta_d is None else ["--beta-d", beta_d]
    assert run("index", "notes", "-o", "n.weft", "-m", light_models.write(tmp_path / "m", settings), *options)[0] == 0
    real, runs = LightBackend.run, []

    def counted(self, batches, *rest):
        runs.append(len(batches))
        return real(self, batches, *rest)

    monkeypatch.setattr(LightBackend, "run", counted)
    verb, *rest = arguments
    code, out, _ = run(verb, "n.weft", QUERY, *rest)
    assert code == 0
    assert len(json.loads(out)["results"]) == 10 if "--json" in rest else "10. " in out
    assert runs == [1]


# -- in a real terminal --------------------------------------------------------------------------------


@pytest.fixture
def terminal(indexed, session):
    return functools.partial(session, dimensions=(40, 110), TERM="xterm-256color")


def ended(child):
    import pexpect

    child.expect(pexpect.EOF)
    said = child.before
    child.close()
    return child.exitstatus, said


def test_a_pretty_search(terminal):
    child = terminal("search", "n.weft", QUERY, "-k", "2")
    child.expect(r"\x1b\[2m 1\. \x1b\[0m\x1b\[1mnotes/")
    code, said = ended(child)
    assert code == 0
    assert "\x1b[1;30;46m" in said  # the strongest word
    code, said = ended(terminal("search", "n.weft", QUERY, "-k", "2", NO_COLOR="1"))
    assert code == 0
    assert "notes/" in said
    assert "46m" not in said


def test_the_prompt(terminal):
    import pexpect

    child = terminal("search", "n.weft", "-k", "2")
    child.expect_exact("5 documents.")
    child.expect_exact("? ")
    child.sendline(QUERY)
    child.expect_exact("1. ")
    child.expect_exact("2. ")
    child.expect_exact("? ")
    child.sendline("2")  # why?
    child.expect_exact("the score")
    child.expect_exact("? ")
    for _ in range(30):  # forgets the line, not the session
        child.sendintr()  # CPython overlooks one that comes between printing the prompt and waiting for a key
        if child.expect_exact(["? ", pexpect.TIMEOUT], timeout=2) == 0:
            break
    else:
        pytest.fail("Ctrl-C brings no new prompt")
    child.sendline(":help")
    child.expect_exact("A question")
    child.expect_exact("? ")
    child.sendeof()
    assert ended(child)[0] == 0


def test_mistakes_do_not_end_the_prompt(terminal):
    child = terminal("search", "n.weft", "--alignment", "xtr-in-batch:2")
    child.expect_exact("? ")
    child.sendline("x")
    child.expect_exact("weft: The 'alignment' parameter")
    child.expect_exact("? ")
    child.sendline(":quit")
    assert ended(child)[0] == 0


def test_json_says_how_tokens_were_retrieved(asked):
    assert "retrieval" not in asked()
    assert asked("--alignment", "xtr:3")["retrieval"] == {"k_prime": 3, "how": "scanned"}
    assert asked("--alignment", "xtr:3", "--exact")["retrieval"] == {"k_prime": 3, "how": "exact"}
