"""The bundled collection keeps the BEIR layout and the promises of its README."""

import importlib.resources
import json
import re
from collections import Counter, defaultdict

import pytest

from weft.storage.filters import parse

DEMO = importlib.resources.files("weft") / "sources" / "demo"
KINDS = {"keyword", "question", "paraphrase", "claim", "multi"}
# Words a paraphrase may share with its answer: they carry no subject.
GRAMMAR = {
    *("a", "an", "and", "are", "be", "because", "been", "before", "after", "but", "by", "do", "does", "for", "from"),
    *("has", "have", "how", "in", "is", "it", "its", "my", "of", "off", "on", "or", "over", "should", "so", "that"),
    *("the", "their", "there", "they", "to", "until", "was", "were", "when", "where", "which", "while", "who", "whose"),
    *("why", "with", "won", "t"),
}


def jsonl(name):
    return [json.loads(line) for line in (DEMO / name).read_text(encoding="utf-8").splitlines()]


def words(text):
    return re.findall(r"[^\W_]+", text.lower())


@pytest.fixture(scope="module")
def corpus():
    return jsonl("corpus.jsonl")


@pytest.fixture(scope="module")
def queries():
    return jsonl("queries.jsonl")


@pytest.fixture(scope="module")
def judgements():
    header, *lines = (DEMO / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    return [(query, doc, int(grade)) for query, doc, grade in (line.split("\t") for line in lines)]


def test_ids_are_unique_readable_slugs(corpus, queries):
    for records in (corpus, queries):
        ids = [record["_id"] for record in records]
        assert len(set(ids)) == len(ids)
        assert [i for i in ids if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", i)] == []


def test_passages_have_one_shape(corpus):
    for record in corpus:
        assert list(record) == ["_id", "title", "text", "metadata"]
        assert isinstance(record["title"], str)
        assert record["title"].strip() == record["title"] != ""
        assert record["text"] == " ".join(record["text"].split())
        assert record["text"][-1] in ".?!"
        assert 60 <= len(record["text"].split()) <= 140, record["_id"]


def test_metadata_has_one_shape(corpus):
    for record in corpus:
        metadata = record["metadata"]
        assert list(metadata) == ["subject", "year", "tags"]
        assert record["_id"].startswith(metadata["subject"] + "-")
        year = metadata["year"]
        assert year is None or (type(year) is int and 0 < year < 2100)
        assert year is None or str(year) in words(record["text"])
        tags = metadata["tags"]
        assert tags
        assert all(isinstance(tag, str) and tag == tag.strip().lower() != "" for tag in tags)
        assert len(set(tags)) == len(tags)


def test_the_filters_of_the_readme_select_some_passages(corpus):
    readme = (DEMO / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"`([^`]+)`", readme.partition("Some filters:")[2].partition("\n\n")[0])
    assert len(examples) == 3
    for example in examples:
        kept = [r["_id"] for r in corpus if parse(example).matches(r["metadata"], id=r["_id"])]
        assert 5 <= len(kept) < len(corpus) / 3, example


def test_it_is_as_large_and_varied_as_promised(corpus, queries, judgements):
    subjects = Counter(record["metadata"]["subject"] for record in corpus)
    kinds = Counter(query["metadata"]["kind"] for query in queries)
    assert len(corpus) >= 220
    assert len(subjects) >= 16
    assert min(subjects.values()) >= 10
    assert len(queries) >= 50
    assert set(kinds) == KINDS
    readme = (DEMO / "README.md").read_text(encoding="utf-8")
    for number, noun in [(len(corpus), "passages"), (len(subjects), "subjects"), (len(queries), "queries")]:
        assert f"{number} {noun}" in readme
    assert f"{len(judgements)} judgements" in readme
    for kind, count in kinds.items():
        assert f"| {kind} | {count} |" in readme


def test_no_passage_repeats_another(corpus):
    seen = {}
    for record in corpus:
        tokens = words(record["text"])
        for gram in {tuple(tokens[i : i + 8]) for i in range(len(tokens) - 7)}:
            assert gram not in seen, (seen[gram], record["_id"], " ".join(gram))
            seen[gram] = record["_id"]
    assert len({record["title"] for record in corpus}) == len(corpus)


def test_queries_have_one_shape(queries):
    for query in queries:
        assert list(query) == ["_id", "text", "metadata"]
        assert list(query["metadata"]) == ["kind"]
        assert query["text"] == " ".join(query["text"].split()) != ""
    assert len({query["text"].lower() for query in queries}) == len(queries)


def test_judgements_point_at_what_exists(corpus, queries, judgements):
    assert {doc for _, doc, _ in judgements} <= {record["_id"] for record in corpus}
    assert {query for query, _, _ in judgements} == {query["_id"] for query in queries}
    assert {grade for _, _, grade in judgements} == {1, 2}
    assert len({(query, doc) for query, doc, _ in judgements}) == len(judgements)


def test_every_query_has_an_answer(queries, judgements):
    grades = defaultdict(list)
    for query, _, grade in judgements:
        grades[query].append(grade)
    assert [query["_id"] for query in queries if 2 not in grades[query["_id"]]] == []
    assert [q["_id"] for q in queries if q["metadata"]["kind"] == "multi" and len(grades[q["_id"]]) < 2] == []


def test_paraphrases_share_no_word_with_their_answers(corpus, queries, judgements):
    # Equal in the first five letters counts as equal, so that inflected forms do not slip through.
    stems = {r["_id"]: {word[:5] for word in words(r["title"] + " " + r["text"])} for r in corpus}
    paraphrases = {q["_id"]: q["text"] for q in queries if q["metadata"]["kind"] == "paraphrase"}
    shared = {
        query: common
        for query, doc, grade in judgements
        if query in paraphrases
        and grade == 2
        and (common := {word[:5] for word in words(paraphrases[query]) if word not in GRAMMAR} & stems[doc])
    }
    assert shared == {}
