"""Serve indexes with limits that the command line does not offer: ``limited_server.py OPTIONS INDEX...``."""

import json
import sys
from pathlib import Path

from weft.serving.api import Server
from weft.serving.keys import Keys
from weft.serving.limits import Limits
from weft.serving.naming import listening, named, open_indexes
from weft.serving.running import run

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    indexes = open_indexes(named([Path(path) for path in sys.argv[2:]]))
    keys = None if options["keys"] is None else Keys.parse(options["keys"])
    server = Server(indexes, limits=Limits(**options["limits"]), keys=keys)
    run(server, listening("127.0.0.1", 0), ready=lambda url: print(f"serving at {url}", file=sys.stderr, flush=True))
