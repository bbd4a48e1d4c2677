"""Metadata, filters, updates and deletions: ``python examples/filters_and_updates.py``."""

import weft

RECIPES = [
    weft.Document("dal", "Red lentils simmered with turmeric, cumin and garlic.", {"minutes": 35, "tags": ["vegan"]}),
    weft.Document("ramen", "Noodles in a broth of pork bones, with an egg.", {"minutes": 240, "tags": ["meat"]}),
    weft.Document("salad", "Cucumber, tomato, mint and lemon, cut small.", {"minutes": 10, "tags": ["vegan", "raw"]}),
]

with weft.TextIndex.open("recipes.weft", create=True) as recipes:
    print(recipes.add(RECIPES))
    print("a warm soup:", [match.id for match in recipes.search("a warm soup")])
    print("... without meat:", [match.id for match in recipes.search("a warm soup", filter='tags contains "vegan"')])
    print("... in a hurry:", [match.id for match in recipes.search("a warm soup", filter="minutes <= 15")])

    # The same id replaces the document, with its metadata; what did not change is left alone.
    print(recipes.add([*RECIPES[:2], weft.Document("salad", "Beans, onion and parsley.", {"minutes": 20})]))
    recipes.delete("ramen")
    print("left:", [match.id for match in recipes.search("anything")])
