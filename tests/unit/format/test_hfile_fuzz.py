"""Mutated HFiles: `CorruptFile` or a decoded result, nothing else. LAKEBED_FUZZ=all runs the whole number."""

from __future__ import annotations

import random
import tracemalloc
from typing import Final

import numpy as np
import pyarrow as pa

from golden_tables import golden_cow_tables
from hfile_model import build, golden_hfiles
from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.bloom import BloomFilter
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.hfile.writer import write_hfile
from sampling import FUZZ, whole

MUTATIONS: Final = 20_000 if whole(FUZZ) else 400
# Far above what the files hold, far below what a wrong length could ask for.
MEMORY: Final = 64 << 20


def seeds() -> list[bytes]:
    rng = random.Random(11)
    keys = pa.array(sorted(rng.randbytes(rng.randrange(1, 9)).hex() for _ in range(60)))
    values = pa.array([rng.randbytes(rng.randrange(30)) for _ in range(60)])
    bloom = BloomFilter.simple(60, 0.1)
    bloom.add(keys)
    blocks = [[(b"%02d%d" % (n, i), rng.randbytes(i)) for i in range(4)] for n in range(9)]
    found = [
        write_hfile(keys, values, schema_json="{}", codec=codec, block_size=size, bloom=bloom)
        for codec, size in (("gzip", 500), ("none", 500), ("none", 1 << 20))
    ]
    found += [build(blocks, levels=levels, codec=2) for levels in (1, 3)]
    found += [data for table in golden_cow_tables()[:3] for _, data in list(golden_hfiles(table))[:2]]
    return found


def spots(data: bytes) -> np.ndarray:
    """Where a change is likely to matter: not the zeros that fill up the trailer."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) != 0)


def mutated(data: bytes, near: np.ndarray, rng: np.random.Generator) -> bytes:
    out = np.frombuffer(data, np.uint8).copy()
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.choice(near)) + int(rng.integers(-3, 4))
        at = min(max(at, 0), len(out) - 8)
        match int(rng.integers(5)):
            case 0:
                out[at] ^= 1 << int(rng.integers(8))
            case 1:
                out[at] = rng.integers(256)
            case 2:
                out[at : at + int(rng.integers(1, 9))] = rng.choice([0, 0x7F, 0x80, 0xFF])
            case 3:
                other, size = int(rng.integers(len(out) - 8)), int(rng.integers(1, 200))
                piece = out[other : other + size].copy()
                out[at : at + len(piece)] = piece[: len(out) - at]
            case _:
                size = int(rng.integers(1, 100))
                out = (
                    np.concatenate([out[:at], out[at + size :]]) if rng.integers(2) else np.insert(out, at, [0] * size)
                )
                near = near[near < len(out) - 8]
    return out.tobytes()


def decode(data: bytes) -> None:
    """Everything that a reader may be asked."""
    file = open_hfile(data)
    assert file.schema_json is not None
    asks = (file.read, lambda: file.bloom, *(lambda keys=keys: file.lookup(keys) for keys in (ASKED, MANY)))
    for ask in (*asks, lambda: file.prefix(ASKED)):
        try:
            ask()
        except CorruptFile:
            continue


ASKED = pa.array([b"", b"0", b"021", b"5a", b"\xff", b"__all_partitions__"])
MANY = pa.concat_arrays([ASKED] * 10)


def opens(data: bytes) -> bool:
    """False where it is refused as a whole; a mutated trailer may name another codec, or a key to decrypt with."""
    try:
        decode(data)
    except CorruptFile:
        return False
    except UnsupportedFeature as refused:
        return "compressed with" not in refused.message and "encrypted" not in refused.message
    return True


def test_mutated_hfiles_decode_or_are_refused_in_bounded_memory() -> None:
    rng = np.random.default_rng(20)
    files = [(data, spots(data)) for data in seeds()]
    for data, _ in files:
        decode(data)
    opened = 0
    tracemalloc.start()
    try:
        for n in range(MUTATIONS):
            opened += opens(mutated(*files[n % len(files)], rng))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MUTATIONS // 10 < opened < MUTATIONS
    assert peak < MEMORY
