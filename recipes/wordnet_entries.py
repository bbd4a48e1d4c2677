"""Write training pairs of a dictionary: a term or its definition, and the entry without it.

    python recipes/wordnet_entries.py FOLDER/wordnet.jsonl

The dictionary is Princeton's WordNet 3.0 (its licence allows any use): apt-get install wordnet-base. It has a few lines
on everything, which keeps a model that is trained on six collections able to tell apart the words of others. The
negative of a row is the entry of a sibling: the same kind of thing, another thing.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

DATABASE = Path("/usr/share/wordnet")
NARROWER, BROADER = {"~", "~i", "&", "%p"}, {"@", "@i"}
"""Pointers to hyponyms and instances, similar adjectives, parts; and to hypernyms (wndb(5))."""
WORDS, ENTRIES, SEED = 70, 1500, 17


@dataclass(frozen=True)
class Entry:
    """A synset: its words, what they mean, sentences that use them, and the keys of narrower and broader synsets."""

    words: str
    definition: str
    examples: tuple[str, ...]
    narrower: tuple[str, ...]
    broader: tuple[str, ...]


def read(line: str) -> tuple[str, Entry]:
    """Read a line of a data file.

    >>> key, entry = read('00005787 03 n 02 benthos 0 deep_sea 0 001 @ 00004475 n 0000 | life at the bottom; "a benthos"')
    >>> key, entry.words, entry.definition, entry.examples, entry.broader
    ('n00005787', 'benthos, deep sea', 'life at the bottom', ('a benthos',), ('n00004475',))
    """
    head, _, gloss = line.partition("|")
    fields = head.split()
    end = 4 + 2 * int(fields[3], 16)
    words = [word.split("(")[0].replace("_", " ") for word in fields[4:end:2]]
    numbers = fields[end + 1 : end + 1 + 4 * int(fields[end])]
    pointers = [(numbers[i], kind(numbers[i + 2]) + numbers[i + 1]) for i in range(0, len(numbers), 4)]
    definition, *examples = (part.strip().strip('"') for part in gloss.strip().split('; "'))
    narrower = tuple(key for symbol, key in pointers if symbol in NARROWER)
    broader = tuple(key for symbol, key in pointers if symbol in BROADER)
    return kind(fields[2]) + fields[0], Entry(", ".join(words), definition, tuple(examples), narrower, broader)


def kind(letter: str) -> str:
    """Return the letter of a part of speech; satellite adjectives (s) stand among the adjectives."""
    return "a" if letter == "s" else letter


def passage(entry: Entry, begin: str, entries: dict[str, Entry]) -> str:
    """Return an entry as a text: `begin`, examples, and its narrower terms with their definitions."""
    narrower = [entries[key] for key in entry.narrower if key in entries]
    parts = [begin, *entry.examples, *(f"{other.words}: {other.definition}" for other in narrower)]
    return " ".join(". ".join(parts).split()[:WORDS])


def main() -> None:
    """Write the pairs."""
    entries: dict[str, Entry] = {}
    for part in ("noun", "verb", "adj"):
        with open(DATABASE / f"data.{part}", encoding="utf-8") as file:
            entries |= (read(line) for line in file if not line.startswith("  "))
    chosen = [key for key, entry in entries.items() if sum(other in entries for other in entry.narrower) >= 2]
    children: dict[str, list[str]] = {}
    for key in chosen:
        for parent in entries[key].broader:
            children.setdefault(parent, []).append(key)
    generator = random.Random(SEED)
    generator.shuffle(chosen)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for number, key in enumerate(chosen[:ENTRIES]):
            entry = entries[key]
            siblings = [other for parent in entry.broader for other in children[parent] if other != key]
            other = entries[generator.choice(siblings or chosen)]
            by_term = number % 2 == 0
            row = {
                "query": entry.words if by_term else entry.definition,
                "positive": passage(entry, entry.definition if by_term else entry.words, entries),
                "negatives": [passage(other, other.definition if by_term else other.words, entries)],
            }
            file.write(json.dumps(row) + "\n")
    print(f"{min(ENTRIES, len(chosen)):,} of {len(chosen):,} entries in {sys.argv[1]}")


if __name__ == "__main__":
    main()
