"""From bytes to text: by a mark, as UTF-8, or by what the bytes look like."""

from __future__ import annotations

import re

from weft.errors import DataError

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_HALF_WIDTH = re.compile("[\uff61-\uff9f]")
_SAMPLE = 2**16
_WESTERN = "cp1252"
_CENTRAL = frozenset(("Polish", "Czech", "Slovak", "Hungarian", "Romanian", "Slovene", "Croatian"))
_ALL = frozenset[str]()
# Code pages of other scripts, and of Latin letters that Windows-1252 lacks, with the languages that need them.
_PAGES: dict[str, frozenset[str]] = {
    **dict.fromkeys(("cp1250", "iso8859_2"), _CENTRAL),
    "cp1254": frozenset(("Turkish",)),
    "cp1257": frozenset(("Lithuanian", "Latvian", "Estonian")),
    **dict.fromkeys(("cp1251", "koi8_r", "cp866", "cp1253", "cp1255", "cp1256", "cp874"), _ALL),
    **dict.fromkeys(("cp932", "euc_jp", "iso2022_jp", "gb18030", "big5", "cp949"), _ALL),
}
_FEW = 8
"""Fewer bytes beyond ASCII are too few to tell the encoding."""


def decode(data: bytes) -> str:
    """Decode text: by its byte order mark, else UTF-8, else by what it looks like; `DataError` if it is not text.

    Examples
    --------
    >>> decode("café".encode()), decode("café".encode("cp1252")), decode("café".encode("utf-16"))
    ('café', 'café', 'café')
    >>> decode("Марс называют красной планетой из-за окиси железа на его поверхности".encode("koi8-r"))
    'Марс называют красной планетой из-за окиси железа на его поверхности'
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError as error:
                raise DataError(f"not the {encoding.upper()} that it claims to be: {error.reason}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode(_WESTERN, errors="replace") if b"\x00" in data else data.decode(guess(data), "replace")
    if "\x00" in text or len(_CONTROLS.findall(text[:_SAMPLE])) > len(text[:_SAMPLE]) / 100:
        raise DataError("binary, not text")
    return text


def guess(data: bytes) -> str:
    """Return the likeliest encoding of bytes that are not UTF-8; Windows-1252 unless they look like another."""
    sample = data[:_SAMPLE]
    if len(sample) - len(sample.decode("ascii", "ignore")) < _FEW:
        return _WESTERN
    from charset_normalizer import from_bytes

    found = from_bytes(sample, cp_isolation=[_WESTERN, *_PAGES]).best()
    if found is not None and found.encoding == "cp932" and len(_HALF_WIDTH.findall(str(found))) > len(sample) / 4:
        # Nobody writes whole texts in half-width kana; bytes of Cyrillic and Greek pages look like them.
        others = [page for page in _PAGES if page != "cp932"]
        found = from_bytes(sample, cp_isolation=[_WESTERN, *others]).best()
    if found is None or found.encoding not in _PAGES:
        return _WESTERN
    needed = _PAGES[found.encoding]
    return found.encoding if not needed or found.language in needed else _WESTERN
