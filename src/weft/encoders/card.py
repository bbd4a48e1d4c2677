"""A checkpoint's model card: which languages its authors say that it reads."""

from __future__ import annotations

import re
from pathlib import Path

CARD_FILE = "README.md"
_CODE = re.compile(r"[a-z]{2}(-[A-Za-z]+)?\Z")


def read_card_languages(folder: Path) -> tuple[str, ...]:
    """Return the codes under ``language:`` in the front matter of a model card; none where it has no such list.

    Entries that are not codes of ISO 639-1, such as ``multilingual``, do not tell which languages are left out.
    """
    try:
        text = (folder / CARD_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    head = re.match(r"---\r?\n(.*?)\r?\n---", text, re.DOTALL)
    if head is None:
        return ()
    import yaml

    try:
        data = yaml.load(head[1], Loader=yaml.BaseLoader)  # texts only: "no" is Norwegian
    except yaml.YAMLError:
        return ()
    listed = data.get("language") if isinstance(data, dict) else None
    codes = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []
    known = all(isinstance(code, str) and _CODE.match(code) for code in codes)
    return tuple(codes) if known else ()
