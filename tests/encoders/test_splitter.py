"""Passages cover the text, fit the model, overlap as asked, and keep their document's id."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoders import light_models
from weft import Document, Encoder, WeftError
from weft.encoders import parent_id, split_document, split_passages, split_text

WORDS = ["the", "red", "planet.", "Mars", "fox,", "why?", "jumps", "\n\n", "\n", " ", "  ", "x1y2", "ﬁn", "日本。", "a"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return Encoder.load(light_models.write(tmp_path_factory.mktemp("light") / "tiny"), document_length=40)


texts = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))


@given(texts, st.integers(3, 40), st.data())
def test_nothing_is_lost_and_everything_fits(encoder, text, length, data):
    overlap = data.draw(st.none() | st.integers(0, length - 3))
    passages = split_text(text, encoder, length=length, overlap=overlap)
    assert passages[0].start == 0
    assert passages[-1].stop == len(text)
    for before, after in pairwise(passages):
        assert before.start < after.start <= before.stop < after.stop
    for passage in passages:
        count = encoder.count_tokens(text[passage.start : passage.stop])[0]
        # One character may be several tokens, and cannot be cut.
        assert count <= length or passage.stop - passage.start == 1


def test_cuts_stand_between_paragraphs_then_sentences_then_words(encoder):
    def split(text):
        return [text[p.start : p.stop] for p in split_text(text, encoder, length=12, overlap=0)]

    assert split("the red fox. the sky is blue.\n\nwhy does rain fall. the dog is lazy.") == [
        "the red fox. the sky is blue.\n\n",
        "why does rain fall. the dog is lazy.",
    ]
    assert split("the red fox jumps over. the sky is blue and why not") == [
        "the red fox jumps over. ",
        "the sky is blue and why ",
        "not",
    ]
    assert split("fox " * 13) == ["fox " * 10, "fox " * 3]
    assert split("z" * 15) == ["z" * 10, "z" * 5]  # a word longer than a passage
    assert split("mars") == ["mars"]
    assert split("") == [""]


def test_overlap_repeats_whole_sentences_or_words(encoder):
    text = "the fox is red. why is it. the dog is lazy. mars is a planet."
    found = [text[p.start : p.stop] for p in split_text(text, encoder, length=14, overlap=6)]
    assert found == [
        "the fox is red. why is it. ",
        "why is it. the dog is lazy. ",
        "the dog is lazy. mars is a planet.",
    ]
    words = "fox dog " * 8
    found = [words[p.start : p.stop].split() for p in split_text(words, encoder, length=8, overlap=2)]
    assert [len(part) for part in found] == [6, 6, 6, 4]


def test_documents_keep_their_ids(encoder):
    document = Document("report#7", "the red planet. " * 20, {"year": 2024})
    passages = split_document(document, encoder)
    assert [p.id for p in passages] == [f"report#7##{n}" for n in range(len(passages))]
    assert {parent_id(p.id) for p in passages} == {"report#7"}
    for p in passages:
        assert p.text == document.text[p.metadata["start"] : p.metadata["stop"]]
        assert p.metadata["parent"] == "report#7"
        assert p.metadata["year"] == 2024
    assert not encoder.truncation(p.text for p in passages)
    assert len(list(split_passages([document, Document("b", "fox")], encoder))) == len(passages) + 1
    assert parent_id("no-number") == "no-number"


def test_a_long_text_is_split_quickly_enough(encoder):
    text = "the red planet mars is known. " * 4000  # 120,000 characters
    passages = split_text(text, encoder)
    assert 28_000 / 38 < len(passages) < 28_000 / 18


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"length": 2}, "between 3 and 40"),
        ({"length": 41}, "between 3 and 40"),
        ({"length": 10, "overlap": 8}, "from 0 to 7"),
        ({"overlap": -1}, "from 0 to 37"),
        ({"overlap": 1.5}, "an integer"),
    ],
)
def test_bad_arguments(encoder, arguments, words):
    with pytest.raises(WeftError, match=words):
        split_text("mars", encoder, **arguments)
