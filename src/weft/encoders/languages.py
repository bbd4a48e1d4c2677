"""Which language a text is in, if that is evident from its script or from the small words that most sentences have.

Nothing is guessed. A text without clear evidence, such as a list of names, code or a query of two nouns, has no
language here. So English is almost never taken for another language, but some short queries are missed. Figures are in
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

SAMPLE = 4000
"""Only this many characters of a text are looked at."""
UNKNOWN = "und"
"""ISO 639's code for an unknown language: here, one that is clearly none of those below."""
LEAST = 2.0
"""What the words of a language must add up to: two of its small words, or one that only questions have."""
LEAST_SHARE = 0.12
"""What they must add up to for each word of the text, on average."""
_DOMINANCE = 3.0  # and this many times what English words add up to
_ACCENTED = 0.5  # a word with letters that English does not have: it may be a name
_PARTICLE = 0.5  # small words that names in English texts have: de la Cruz, van Gogh
_ENGLISH_IN_PASSING = 0.02  # foreign letters in a text with more English words than this are those of names
_MOSTLY_ACCENTED = 0.5  # so many words with foreign letters are evidence without small words, too

NAMES = {
    "am": "Amharic", "ar": "Arabic script", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "fi": "Finnish", "fr": "French", "he": "Hebrew",
    "hi": "Devanagari script", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian",
    "it": "Italian", "ja": "Japanese", "ka": "Georgian", "ko": "Korean", "nl": "Dutch", "no": "Norwegian",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Cyrillic script", "sv": "Swedish", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tr": "Turkish", "vi": "Vietnamese", "zh": "Chinese", UNKNOWN: "another language",
}  # fmt: skip

# Ranges of letters, by the language that most texts in the script are in.
_SCRIPTS = {
    "am": "\u1200-\u137f",
    "ar": "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc",
    "bn": "\u0980-\u09ff",
    "el": "\u0370-\u03ff\u1f00-\u1fff",
    "he": "\u0590-\u05ff",
    "hi": "\u0900-\u097f",
    "hy": "\u0530-\u058f",
    "ja": "\u3041-\u30ff",
    "ka": "\u10a0-\u10ff",
    "ko": "\u1100-\u11ff\uac00-\ud7a3",
    "ru": "\u0400-\u04ff",
    "ta": "\u0b80-\u0bff",
    "te": "\u0c00-\u0c7f",
    "th": "\u0e00-\u0e7f",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff",
}
_SAME_SCRIPT = {
    **dict.fromkeys(("be", "bg", "kk", "ky", "mk", "mn", "sr", "tg", "uk"), "ru"),
    **dict.fromkeys(("fa", "ps", "ug", "ur"), "ar"),
    **dict.fromkeys(("mr", "ne", "sa"), "hi"),
    "yi": "he",
}
_ANY_SCRIPT = re.compile(f"[{''.join(_SCRIPTS.values())}]")
_LATIN = "A-Za-z\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff"
_WORD = re.compile(f"(?<![0-9_{_LATIN}])[{_LATIN}]{{2,}}(?![0-9_])")
_LATIN_LETTER = re.compile(f"[{_LATIN}]")
_FOREIGN_LETTER = re.compile("[\u00df-\u00f6\u00f8-\u024f\u0300-\u036f\u1e00-\u1eff]")


def _words(text: str) -> list[str]:
    return text.split()


# Words of grammar, without those that English texts have too.
_WORDS = {
    "ca": "els les una és són amb per que qui quan com quin quina quins quantes dels als aquest aquesta ser més també",
    "cs": "na je se ne do byl byla bylo jsou pro od za po ale nebo jak který která které kdo kdy kde jeho její že jako",
    "da": "og det som en et er var ikke på med til af fra om den de har havde skal ved eller hvor jeg hun blev være",
    "de": "der den dem des das ein eine einen einem einer eines und oder aber nicht ist sind wird werden wurde wurden "
    "hatte haben sich auf aus bei mit nach von vor zu zum zur für über unter zwischen durch wie viele wer wen "
    "wem wo wenn dass die im am beim als auch noch nur ich du er sie wir ihr ihre sein seine kann mehr",
    "es": "el los las una es son fue fueron era pero en con por para sin sobre entre este esta estos estas que ella "
    "ellos se su sus lo al del más como también muy ya hay ser había han cuando quien donde",
    "fi": "ja on oli ei ovat että joka jotka kun mutta tai myös hän hänen sen ne tämä tämän olla ollut sekä",
    "fr": "les des une est sont était et ou mais dans sur avec pour par sans sous entre ce cette ces qui que quoi où "
    "il elle nous vous ils elles je ne pas plus au aux du été leur leurs ses être avoir fait comme aussi",
    "hr": "je se na da su za od nije ili ali koji koja koje bio bila biti kao iz po ne",
    "hu": "az egy és hogy nem volt van vagy mint meg ez azt aki ami mely hol csak már még",
    "id": "yang dan di ke dari untuk dengan pada adalah tidak ini itu atau oleh sebagai dalam akan juga telah mereka",
    "it": "il gli una sono era erano ed ma nel nella nelle dei delle degli della dello con per tra fra questo questa "
    "che chi quale quali come lui lei noi voi loro si suo sua suoi più anche non stato stata essere hanno",
    "nl": "het een en maar niet zijn wordt werd werden waren heeft hebben zich op uit bij met naar van voor aan door "
    "tussen hoe wie waar wat deze dit ik jij hij zij wij ze hun haar ook nog meer als dat",
    "no": "og det som en et er var ikke på med til av fra om den de har hadde skal ved eller jeg hun ble være",
    "pl": "na nie się do jest są był była było przez od za po dla oraz ale lub czy jak który która które jego jej ich",
    "pt": "os uma uns umas são foi foram era mas em no na nos nas com por para sem sobre entre este esta esse essa "
    "que quem qual como ele ela nós eles se seu sua seus suas ao dos das pelo pela mais também não já ser",
    "ro": "și în din cu pe la este sunt era fost nu sau dar care ce pentru prin despre după între lui ei lor său mai "
    "un unei unui ale al cel cea fi au",
    "sv": "och att det som en ett är var inte på med för till av från om den de har hade ska vid eller jag hon",
    "tr": "zaman ve bir bu için ile olarak olan da de mi ne kim neden daha çok en gibi kadar sonra tarafından oldu "
    "ise veya ancak",
    "vi": "và của là có không được các những một trong với cho người để khi như này đã từ về đến theo bị",
}
_QUESTIONS = {
    "cs": "proč kolik",
    "da": "hvad hvem hvornår hvilken hvilke hvorfor hvordan",
    "de": "welche welcher welches welchem welchen warum wann wieso weshalb wofür womit woher wodurch worin wohin "
    "wieviel wieviele wessen",
    "es": "qué quién quiénes cuál cuáles cuándo cómo dónde cuánto cuánta cuántos cuántas",
    "fi": "mikä kuka missä milloin miksi miten kuinka montako",
    "fr": "quel quelle quels quelles pourquoi combien",
    "hr": "zašto koliko gdje",
    "hu": "mikor hogyan miért hány milyen melyik",
    "id": "siapa kapan bagaimana mengapa berapa",
    "it": "perché quanti quante dov",
    "nl": "wanneer waarom welke hoeveel",
    "no": "hva hvem hvilken hvilke hvorfor hvordan",
    "pl": "dlaczego gdzie kiedy ile",
    "pt": "quais onde quantos quantas",
    "ro": "când unde câte câți câtă cine cât își",
    "sv": "vad vem vilken vilka varför",
    "tr": "nedir hangi nasıl nerede kaç nerededir kimdir kimdi kimler neydi neyi nelerdi nelerdir",
    "vi": "nào gì đâu bao nhiêu",
}
_PARTICLES = frozenset(
    _words(
        "al am as au con die da das de del della dem den der des di do du een ei el en er es et fra ile ja kan kim la "
        "le les los las mi na ne no non om on op os par pas per pro se si sin son su tra un una van vi von ya zu ze"
    )
)
_ENGLISH = frozenset(
    _words(
        "the and of to that it with for this are be by from which what how who whom whose when where why not have has "
        "were been their its can you your does did do if but they or at all there than would should could into about "
        "is his her she our my"
    )
)
"""Without those that other languages have too: in, was, so, …"""


def _weights() -> dict[str, dict[str, float]]:
    """Return what each small word of each language is worth."""
    weights: dict[str, dict[str, float]] = {}
    for code, words in _WORDS.items():
        shared = _PARTICLES | _ENGLISH
        weights[code] = {word: _PARTICLE if word in shared else 1.0 for word in words.split()}
        weights[code] |= dict.fromkeys(_QUESTIONS.get(code, "").split(), LEAST)
    return weights


_WEIGHTS: Mapping[str, Mapping[str, float]] = _weights()


def language_of(text: str) -> str | None:
    """Return the code of the language (ISO 639-1) that a text is evidently in, or None.

    Of the languages of a script other than Latin, the most common one stands for all.

    Examples
    --------
    >>> texts = "Wie weit ist es bis zum Mond?", "how far is the moon", "月までの距離", "Luna 9"
    >>> [language_of(text) for text in texts]
    ['de', 'en', 'ja', None]
    """
    text = text[:SAMPLE]
    others = len(_ANY_SCRIPT.findall(text))
    if others > len(_LATIN_LETTER.findall(text)):
        counts = {code: len(re.findall(f"[{ranges}]", text)) for code, ranges in _SCRIPTS.items()}
        # Japanese is written with Chinese letters too.
        return "ja" if counts["ja"] > others / 10 else max(counts, key=lambda code: counts[code])
    return _latin_language([word.lower() for word in _WORD.findall(text)])


def other_language(text: str, read: Collection[str]) -> str | None:
    """Return the language that a text is evidently in if it is none of `read`, codes of ISO 639-1; else None.

    Examples
    --------
    >>> other_language("Wie weit ist es bis zum Mond?", ["en"]), other_language("Wie weit ist es?", ["en", "de"])
    ('de', None)
    """
    if not read:
        return None
    codes = {_SAME_SCRIPT.get(code, code) for code in (tag.lower().partition("-")[0] for tag in read)}
    if not codes <= NAMES.keys():  # it may be in a language that is not told apart here
        return None
    found = language_of(text)
    return found if found not in codes else None


def _latin_language(words: list[str]) -> str | None:
    english = sum(word in _ENGLISH for word in words)
    sums = {code: sum(weights.get(word, 0.0) for word in words) for code, weights in _WEIGHTS.items()}
    best = max(sums, key=lambda code: sums[code])
    worth = dict(_WEIGHTS[best])
    if english <= _ENGLISH_IN_PASSING * len(words):
        accented = {word for word in words if _FOREIGN_LETTER.search(word)}
        if sums[best] or len(accented) >= max(4, _MOSTLY_ACCENTED * len(words)):
            worth = dict.fromkeys(accented, _ACCENTED) | worth
    total = sum(worth.get(word, 0.0) for word in words)
    # A repeated name proves nothing: each different word counts once.
    evident = sum(worth.get(word, 0.0) for word in set(words)) >= LEAST
    if evident and total >= max(LEAST_SHARE * len(words), _DOMINANCE * english):
        return best if sums[best] >= 1 else UNKNOWN
    return "en" if english >= max(LEAST, LEAST_SHARE * len(words), _DOMINANCE * sums[best]) else None
