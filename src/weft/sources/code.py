"""Source files: text that is best split where functions and classes begin, found by tree-sitter.

Without the ``code`` extra, or for a language without a grammar, a file is read as lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from weft.sources.decoding import decode
from weft.sources.extracted import Extracted, one_line, unix_lines

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LARGEST = 2**21
"""Files of more bytes are not parsed: they are data rather than code."""
SMALL = 2**15
"""Files of more bytes are parsed in the separate process: ambiguous ones take 3 kB of memory a byte."""
_FUNCTIONS = {
    *("function_definition", "function_declaration", "function_item", "function_signature_item", "method_declaration"),
    *("method_definition", "method", "singleton_method", "constructor_declaration", "generator_function_declaration"),
    *("macro_definition",),
}
_CONTAINERS = {
    *("class_definition", "class_declaration", "class", "class_specifier", "abstract_class_declaration", "module"),
    *("struct_specifier", "struct_item", "struct_declaration", "enum_item", "enum_declaration", "impl_item"),
    *("trait_item", "trait_declaration", "interface_declaration", "namespace_definition", "namespace_declaration"),
    *("mod_item", "type_declaration", "record_declaration", "internal_module"),
}
# What stands around a definition and belongs to it, or around many.
_WRAPPERS = {
    *("decorated_definition", "template_declaration", "export_statement", "declaration_list", "block", "class_body"),
    *("body_statement", "field_declaration_list", "type_spec", "linkage_specification", "preproc_ifdef", "preproc_if"),
    *("program", "source_file", "translation_unit", "compilation_unit", "lexical_declaration", "interface_body"),
    *("file_scoped_namespace_declaration",),
}
_COMMENTS = {"comment", "line_comment", "block_comment", "attribute_item", "decorator"}


def code(data: bytes, language: str) -> Extracted:
    r"""Read a source file; `cuts` and `headings` say where its functions and classes begin.

    Examples
    --------
    >>> found = code(b"import os\n\ndef f():\n    pass\n\nclass A:\n    def g(self):\n        pass\n", "python")
    >>> [name for _, name in found.headings]  # doctest: +SKIP
    ['f', 'A', 'A.g']
    """
    text = unix_lines(decode(data))
    encoded = text.encode("utf-8", "replace")
    parser = _parser(language) if len(encoded) <= LARGEST else None
    if parser is None:
        return Extracted(text, first_line=1)
    found = sorted(dict(_definitions(parser.parse(encoded).root_node, encoded)).items())
    places = _characters(encoded, [start for start, _ in found])
    headings = tuple((place, name) for place, (_, name) in zip(places, found, strict=True) if name)
    return Extracted(text, headings=headings, first_line=1, cuts=tuple(places))


def is_costly(size: int) -> bool:
    """Tell whether a file of this size is to be parsed in the separate process."""
    return SMALL < size <= LARGEST and find_spec("tree_sitter") is not None


@cache
def _parser(language: str) -> Parser | None:
    try:
        from tree_sitter import Language, Parser

        module: Any = import_module(f"tree_sitter_{'typescript' if language == 'tsx' else language}")
    except ImportError:
        return None
    grammar = getattr(module, f"language_{language}", None) or module.language
    return Parser(Language(grammar()))


def _definitions(root: Node, text: bytes) -> Iterator[tuple[int, str]]:
    """Yield the byte at which each definition begins, with the comments before it, and its qualified name."""
    waiting: list[tuple[Node, str, int | None]] = [(root, "", None)]  # with the name and the start of what is around
    while waiting:
        node, around, start = waiting.pop()
        before: Node | None = None
        for child in node.named_children:
            if child.type in _COMMENTS:
                before = child if before is None or _apart(before.end_byte, child.start_byte, text) else before
                last = child
                continue
            led = before is not None and not _apart(last.end_byte, child.start_byte, text)
            first = before.start_byte if led and before is not None else child.start_byte
            before = None
            value = child.child_by_field_name("value")
            defines = child.type in _FUNCTIONS or (
                value is not None and value.type in ("arrow_function", "function_expression")
            )
            if defines or child.type in _CONTAINERS:
                name = ".".join(part for part in (around, _name(child)) if part)
                yield _line_start(text, first if start is None else start), name
                if not defines:
                    waiting.append((child, name, None))
            elif child.type in _WRAPPERS:
                wraps = child.type in (
                    "decorated_definition",
                    "template_declaration",
                    "export_statement",
                    "lexical_declaration",
                )
                waiting.append((child, around, first if wraps else None))


def _apart(stop: int, start: int, text: bytes) -> bool:
    """Tell whether a blank line, or anything but white space, stands between two places."""
    between = text[stop:start]
    return bool(between.strip()) or between.count(b"\n") > 1


def _name(node: Node) -> str:
    named: Node | None = node
    for _ in range(8):  # C hides a function's name in its declarators
        if named is None:
            return ""
        inner = named.child_by_field_name("name") or named.child_by_field_name("declarator")
        if inner is None and named is node:
            inner = named.child_by_field_name("type")
        if inner is None:
            break
        named = inner
    return (
        ""
        if named is None or named is node or named.text is None
        else one_line(named.text.decode("utf-8", "replace"), 80)
    )


def _line_start(text: bytes, at: int) -> int:
    return text.rfind(b"\n", 0, at) + 1


def _characters(text: bytes, places: list[int]) -> list[int]:
    """Turn bytes into characters, for places in order."""
    if text.isascii():
        return places
    counts = [0]
    for a, b in pairwise([0, *places]):
        counts.append(counts[-1] + len(text[a:b].decode("utf-8", "replace")))
    return counts[1:]
