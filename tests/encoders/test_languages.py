"""Which language a text is evidently in: other languages are noticed, English never is."""

import pytest

from encoders.light_models import SETTINGS
from weft import Encoder
from weft.encoders.card import read_card_languages
from weft.encoders.hub import needed
from weft.encoders.languages import NAMES, UNKNOWN, language_of, other_language
from weft.encoders.settings import Settings
from weft.sources.beir import DEMO, Collection

SENTENCES = {
    "ar": "لماذا يبدو كوكب المريخ أحمر؟",
    "bn": "মঙ্গল গ্রহ লাল কেন?",
    "cs": "Proč je planeta Mars červená a kdo ji objevil?",
    "da": "Hvorfor er planeten Mars rød, og hvem har fundet den?",
    "de": "Warum sieht der Planet Mars rot aus?",
    "el": "Γιατί ο πλανήτης Άρης φαίνεται κόκκινος;",
    "es": "¿Por qué el planeta Marte se ve rojo?",
    "fi": "Miksi Mars on punainen planeetta ja kuka sen löysi?",
    "fr": "Pourquoi la planète Mars est-elle rouge ?",
    "he": "למה כוכב הלכת מאדים אדום?",
    "hi": "मंगल ग्रह लाल क्यों दिखता है?",
    "hu": "Miért vörös a Mars bolygó, és ki fedezte fel?",
    "id": "Mengapa planet Mars tampak merah?",
    "it": "Perché il pianeta Marte appare rosso?",
    "ja": "火星はなぜ赤いのですか",
    "ko": "화성은 왜 붉게 보입니까?",
    "nl": "Waarom ziet de planeet Mars er rood uit?",
    "pl": "Dlaczego planeta Mars jest czerwona?",
    "pt": "Quantos anos tem o planeta e onde ele fica?",
    "ro": "Când a fost descoperită planeta Marte și unde?",
    "ru": "Почему планета Марс кажется красной?",
    "sv": "Varför är planeten Mars röd?",
    "th": "ทำไมดาวอังคารจึงเป็นสีแดง",
    "tr": "Mars gezegeni neden kırmızı ve hangi gezegen daha büyük?",
    "vi": "Tại sao sao Hỏa có màu đỏ?",
    "zh": "火星为什么看起来是红色的？",
}
ENGLISH = [
    "why is the red planet red",
    "Los Angeles population",
    "Charles de Gaulle airport",
    "Vincent van Gogh, Ludwig van Beethoven",
    "Rio de la Plata",
    "Gabriel García Márquez",
    "naïve café résumé",
    "das Boot cast",
    "Vi IMproved - enhanced vi editor",
    "kan extensions, kan lifts",
    "α-helix and β-sheet in μ-opioid receptors",
    "what does 火星 mean",
    "ERR_CONN_RESET BX-4410",
    "def main(argv):\n    es = [e for e in argv if e]\n    os.path.join(es[0], 'en', 'de')",
    "SELECT un, die FROM der WHERE de = 1",
    "12, 14, 16",
    "",
    "WER of ASR systems",
    "El Niño and La Niña",
    "Die Hard",
]


@pytest.mark.parametrize("code", SENTENCES)
def test_other_languages_are_noticed(code):
    assert language_of(SENTENCES[code]) == code
    assert other_language(SENTENCES[code], ("en",)) == code
    assert other_language(SENTENCES[code], ("en", code)) is None
    assert code in NAMES


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_not_taken_for_another_language(text):
    assert other_language(text, ("en",)) is None


def test_the_demo_is_english():
    collection = Collection.read(DEMO)
    texts = [document.full_text for document in collection.documents] + list(collection.queries.values())
    assert [text for text in texts if other_language(text, ("en",))] == []


def test_what_a_model_reads():
    english, german = "why is the sky blue and who was it", SENTENCES["de"]
    assert other_language(english, ("de",)) == "en"
    assert other_language(german, ()) is None, "nothing is known about the model"
    assert other_language(german, ("en", "sw")) is None, "Swahili is not told apart from others"
    assert other_language(SENTENCES["ru"], ("en", "uk")) is None, "one script"
    assert other_language(SENTENCES["zh"], ("en", "zh-CN")) is None
    accented = "žluťoučký kůň úpěl ďábelské ódy"
    assert other_language(accented, ("en",)) == UNKNOWN


def test_settings_keep_the_languages(tmp_path):
    assert Encoder.load().languages == ("en",)
    known = Settings("m", 6, SETTINGS.query, SETTINGS.document, languages=("en", "de"))
    assert Settings.from_json(known.to_json(), tmp_path).languages == ("en", "de")
    assert '"languages"' not in SETTINGS.to_json(), "earlier versions refuse keys that they do not know"
    assert Settings.from_json(SETTINGS.to_json(), tmp_path).languages == ()


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlanguage: en\n---\n# Model", ("en",)),
        ("---\nlanguage:\n- en\n- no\nlicense: mit\n---\n", ("en", "no")),
        ("---\nlanguage: multilingual\n---\n", ()),
        ("---\nlanguage: [en, multilingual]\n---\n", ()),
        ("---\nlicense: mit\n---\n", ()),
        ("---\nlanguage: [en\n---\n", ()),
        ("# Model", ()),
        (None, ()),
    ],
)
def test_model_cards(tmp_path, card, expected):
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert read_card_languages(tmp_path) == expected


def test_the_hub_is_asked_for_the_card():
    assert needed(["README.md", "docs/README.md", "config.json"]) == ["README.md", "config.json"]
