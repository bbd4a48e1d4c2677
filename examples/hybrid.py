"""Token vectors find what is meant, words what is written; hybrid search asks both: ``python examples/hybrid.py``."""

import weft

PARTS = {
    "X-4410": "Gasket X-4410 for the lid of the pressure cooker, silicone, 22 cm.",
    "X-4411": "Gasket X-4411 for the lid of the pressure cooker, silicone, 24 cm.",
    "V-0032": "Safety valve V-0032: lets steam out before the pot can burst.",
    "H-9001": "Handle H-9001, stays cool on the stove.",
}

with weft.TextIndex.open("parts.weft", create=True) as parts:
    parts.add(PARTS)
    for query in ("4411", "what keeps it from exploding?"):
        for way in (None, "rrf"):
            found = [match.id for match in parts.search(query, k=2, hybrid=way)]
            print(f"{query:32} {'hybrid' if way else 'vectors':8} {found}")
