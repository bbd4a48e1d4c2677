"""E-mail: a message, or a folder of them in one file."""

from __future__ import annotations

import mailbox
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from weft.sources.extracted import Extracted, one_line, tidy, unix_lines

LONGEST = 16_384
"""The most characters of a header that are read: Python's parser takes quadratic time."""


class _Policy(policy.EmailPolicy):
    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:LONGEST]


_POLICY = _Policy()


def mail(data: bytes) -> Extracted:
    """Read a message: the subject as title, the text that a person would read, sender, receivers, date, attachments."""
    message: Any = message_from_bytes(data, policy=_POLICY)
    assert isinstance(message, EmailMessage)
    body = message.get_body(preferencelist=("plain", "html"))
    subject = one_line(message["subject"])
    text = _text(body) if isinstance(body, EmailMessage) else ""
    known = {"from": one_line(message["from"]), "to": one_line(message["to"], 2000), "date": _date(message)}
    names = [one_line(part.get_filename()) for part in message.iter_attachments() if part.get_filename()]
    metadata: dict[str, Any] = {key: value for key, value in known.items() if value}
    if names:
        metadata["attachments"] = names
    if message["message-id"]:
        metadata["message_id"] = one_line(message["message-id"]).strip("<>")
    return Extracted(f"{subject}\n\n{text}".strip(), subject, metadata=metadata)


def _text(body: EmailMessage) -> str:
    data = body.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    if body.get_content_subtype() == "html":
        from weft.sources.markup import html

        return html(data).text
    charset = body.get_content_charset("utf-8")
    try:
        return tidy(data.decode(charset))
    except (LookupError, UnicodeError):  # it says what it is not
        from weft.sources.decoding import decode

        return tidy(unix_lines(decode(data)))


def _date(message: EmailMessage) -> str:
    try:
        return parsedate_to_datetime(str(message["date"])).isoformat()
    except (TypeError, ValueError, IndexError, OverflowError):
        return ""


def messages(path: Path) -> Iterator[bytes]:
    """Read the messages of an mbox file, one at a time."""
    box = mailbox.mbox(path, create=False)
    try:
        for key in box.iterkeys():
            yield box.get_bytes(key)
    finally:
        box.close()
