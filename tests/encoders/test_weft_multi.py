"""The multilingual model as it lies in the repository, read without being installed."""

from pathlib import Path

import numpy as np
import pytest

from weft import Encoder
from weft.encoders.languages import other_language
from weft.evaluation.pools import Encoded
from weft.evaluation.scoring import score_all

FOLDER = Path(__file__).parents[2] / "packages" / "weft-multi" / "weft_multi" / "model"
QUESTIONS = {
    "de": "Wie oft braucht die Pumpe Öl?",
    "ru": "Сколько лун у Марса?",
    "zh": "面包要烤多久？",
    "en": "how many moons does Mars have",
}
DOCUMENTS = [
    "Die Pumpe ist jeden Monat zu ölen; die Dichtung hält ein Jahr.",
    "У Марса два спутника, Фобос и Деймос.",
    "面包在烤箱里烤四十分钟。",
    "Mars has two small satellites, Phobos and Deimos.",
]


@pytest.fixture(scope="module")
def encoder():
    if not FOLDER.is_dir():
        pytest.skip("packages/weft-multi is not here: an installed weft is tested")
    return Encoder.load(FOLDER)


def test_it_is_small_and_is_what_its_card_says(encoder):
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 60e6
    assert (encoder.name, encoder.dim, encoder.alignment) == ("weft-multi", 256, "xtr")
    assert (encoder.query_length, encoder.document_length) == (128, 256)
    assert encoder.tokenizer.get_vocab_size() == 140_000
    assert all(other_language(text, encoder.languages) is None for text in DOCUMENTS)


def test_questions_find_the_text_in_their_language(encoder):
    vectors = [encoder.encode_query(list(QUESTIONS.values())), encoder.encode_document(DOCUMENTS)]
    scores = score_all(Encoded(*vectors, False), "sum-of-max")
    assert scores.argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert np.argsort(-scores[3])[1] == 1, "then the same in another language"


def test_no_character_of_a_script_is_unknown(encoder):
    unknown = encoder.tokenizer.token_to_id("<unk>")
    for text in [
        "Ελλάδα",
        "বাংলা",
        "ქართული",
        "ភាសាខ្មែរ",
        "አማርኛ",
        "עברית",
        "தமிழ்",
        "日本語",
        "한국어",
        "ไทย",
        "हिन्दी",
        "Հայերեն",
    ]:
        assert unknown not in encoder.tokenizer.encode(text).ids, text
