"""Search a folder of files: ``python examples/folder.py [FOLDER] [QUERY]``. Run it again after files have changed."""

import sys

import weft

folder, query = (sys.argv[1:] + ["docs", "what happens to my data in a power cut"][len(sys.argv) - 1 :])[:2]

with weft.TextIndex.open("folder.weft", create=True) as index:
    # Only files that changed since the last run are encoded; sync removes those that are gone.
    print(index.add_files(folder, sync=True))
    for match in index.search(query, k=3):
        print(f"\n{match.score:.2f}  {match.id}")
        print(" ".join(match.text.split())[:200])
