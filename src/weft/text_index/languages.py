"""Say once that texts are in a language that the model does not read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property

from weft.encoders import Encoder
from weft.encoders.languages import NAMES, other_language
from weft.encoders.packages import KNOWN

logger = logging.getLogger(__name__)


class Languages:
    """What a `TextIndex` says about languages: once for queries, and once for each language of documents."""

    @cached_property
    def _told(self) -> set[str]:
        return set()

    def _notice_queries(self, queries: Sequence[str], encoder: Encoder) -> None:
        if "query" in self._told:
            return
        for query in queries:
            found = other_language(query, encoder.languages)
            if found is not None:
                self._told.add("query")
                read = _listed(encoder.languages)
                logger.warning(
                    "the query is in %s, but %s reads %s: ask in %s, search by words (--hybrid --weights 0 1), "
                    "or use an index whose model reads it (%s)",
                    *(NAMES[found], encoder.name, read, read, _offer(encoder)),
                )
                return

    def _notice_passages(self, languages: Mapping[str, int], written: int, encoder: Encoder) -> None:
        new = {code: count for code, count in languages.items() if code not in self._told}
        if not new:
            return
        self._told |= new.keys()
        logger.warning(
            "%s of %s passages are not in %s, the language of %s: %s. They are indexed, but searches find them badly: "
            "use a model that reads them (%s), or search by words (--hybrid --weights 0 1)",
            f"{sum(new.values()):,}",
            f"{written:,}",
            _listed(encoder.languages),
            encoder.name,
            ", ".join(f"{count:,} {NAMES[code]}" for code, count in sorted(new.items(), key=lambda item: -item[1])),
            _offer(encoder),
        )


def _listed(codes: Sequence[str]) -> str:
    return " or ".join(NAMES.get(code, code) for code in codes)


def _offer(encoder: Encoder) -> str:
    """Name the models that read other languages, or the option that takes a model."""
    others = [f"--model {name} reads {what}" for name, what in KNOWN.items() if name != encoder.name]
    return "; ".join(others) or "--model"
