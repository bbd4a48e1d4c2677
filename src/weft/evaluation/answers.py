"""Open-domain question answering: a passage is relevant if it has one of the answers in it (XTR table 3).

The test is the field's usual one: texts are decomposed (NFD), cut into words and single signs, lower-cased, and an
answer counts where its tokens stand in the passage one after the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.errors import DataError
from weft.evaluation.runs import Run, ranked
from weft.sources.beir import objects

_TOKEN = re.compile(r"[^\W_]+[\u0300-\u036f]*(?:[^\W_]|[\u0300-\u036f])*|[^\w\s]|_")


def tokens(text: str) -> list[str]:
    """Cut a text into tokens, as answers are compared.

    Examples
    --------
    >>> tokens("J.F. Kennedy, in 1961")
    ['j', '.', 'f', '.', 'kennedy', ',', 'in', '1961']
    """
    return [token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text))]


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Tell whether the text contains one of the answers.

    Examples
    --------
    >>> has_answer("It was in New York City.", ["new york"]), has_answer("It was in Newark.", ["new"])
    (True, False)
    """
    # Between separators no token can match a part of another.
    inside = "\0" + "\0".join(tokens(text)) + "\0"
    return any(wanted and "\0" + "\0".join(wanted) + "\0" in inside for wanted in map(tokens, answers))


def judge(
    run: Run, texts: Mapping[str, str], answers: Mapping[str, Sequence[str]], depth: int = 100
) -> dict[str, dict[str, int]]:
    """Judge the best `depth` documents of each query by its answers: 1 or 0.

    Only what a system found is judged, so these judgements serve its own Success@k (``top-20``) and nothing that counts
    relevant documents a system missed.
    """
    found: dict[str, dict[str, int]] = {}
    for query, accepted in answers.items():
        names = ranked(run.get(query, {}), depth)
        found[query] = {name: int(has_answer(texts[name], accepted)) for name in names if name in texts}
    return found


def read_answers(folder: str | Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Read optional fields of queries.jsonl: ``answers`` (or ``answer``), and ``group`` (or ``relation``)."""
    answers: dict[str, list[str]] = {}
    groups: dict[str, str] = {}
    for row in objects(Path(folder) / "queries.jsonl"):
        name = str(row.get("_id"))
        accepted = row.get("answers", row.get("answer"))
        if accepted is not None:
            listed = [accepted] if isinstance(accepted, str) else accepted
            if not isinstance(listed, list) or not all(isinstance(answer, str) for answer in listed):
                raise DataError(f"{str(folder)!r}: the answers of query {name!r} are not a list of texts")
            answers[name] = listed
        group = row.get("group", row.get("relation"))
        if group is not None:
            groups[name] = str(group)
    return answers, groups
