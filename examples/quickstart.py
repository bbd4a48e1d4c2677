import weft

notes = {
    "mars": "Iron oxide, plain rust, gives the dust of Mars its colour.",
    "sky": "Air scatters short wavelengths of sunlight the most: overhead we see blue.",
    "sea": "Rivers carry dissolved minerals to the ocean, and the sun takes only the water away.",
}
query = "why is the red planet red"
with weft.TextIndex.open("quickstart.weft", create=True) as index:
    index.add(notes)
    for match in index.search(query, k=2):
        print(f"{match.score:.2f}  {match.id}: {match.text}")
    print(index.explain(query)[0])
