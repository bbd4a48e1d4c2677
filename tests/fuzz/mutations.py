"""Random changes to bytes, texts and arrays: all that the targets share."""

import numpy as np

LARGE = [0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1]


def mutated(rng, data, tokens=()):
    """Return bytes with a few changes: flipped, cut, doubled, written over, or with one of the tokens put in."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        kind = rng.randrange(7 if tokens else 6)
        at = rng.randrange(len(data) + 1)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice((0, 1, 10, 32, 34, 92, 127, 128, 255, rng.randrange(256)))
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 8, 100))]
        elif kind == 3:
            data[at:at] = data[at : at + rng.choice((1, 8, 200))] * rng.choice((1, 2, 50))
        elif kind == 4:
            data[at : at + 4] = rng.choice(LARGE).to_bytes(8, rng.choice(("little", "big")))[: rng.choice((1, 2, 4, 8))]
        elif kind == 5:
            del data[at:]
        elif kind == 6:
            data[at:at] = rng.choice(tokens)
        if not data:
            break
    return bytes(data[: 1 << 16])


def flipped(rng, data):
    """Return bytes of the same length, with one to four of them changed."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    return bytes(data)


def changed_info(rng, info):
    """Return what a header says, with something else in one place."""
    other = rng.choice((*LARGE, -1, 1.5, 1e308, None, True, "x", "", [], [-1], {}))
    return {**info, rng.choice(sorted(info)): other}


def changed_array(rng, array):
    """Return an array with another number somewhere, or of another length, type or shape."""
    kind = rng.choice(("put", "put", "put", "cut", "type", "flat"))
    if kind == "put" and array.size:
        array = array.copy()
        limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
        values = [0.0, -1.0, np.inf, np.nan, 1e30]
        if limits is not None:
            values = [v for v in (0, 1, 2, -1, limits.max, limits.min, array.size) if limits.min <= v <= limits.max]
        with np.errstate(all="ignore"):
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice(values)
        return array
    if kind == "cut":
        return array[: rng.randrange(len(array) + 1)]
    if kind == "type":
        with np.errstate(all="ignore"):
            return array.astype(rng.choice(("u1", "i1", "<i4", "<u8", "<f2")))
    return array.reshape(-1)
