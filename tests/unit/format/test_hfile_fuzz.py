"""Mutated HFiles: `CorruptFile` or a decoded result, nothing else. LAKEBED_FUZZ=all runs the whole number."""

from __future__ import annotations

import random
import tracemalloc
from typing import Final

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.bloom import BloomFilter
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.hfile.writer import write_hfile
from support.golden_tables import golden_cow_tables
from support.hfile_model import build, golden_hfiles
from support.outcomes import Outcomes
from support.sampling import FUZZ, whole

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


def decode(data: bytes, answers: Outcomes) -> None:
    """Everything that a reader may be asked; how the questions of a file that opens end is counted."""
    file = open_hfile(data)
    assert file.schema_json is not None
    asks = (file.read, lambda: file.bloom, *(lambda keys=keys: file.lookup(keys) for keys in (ASKED, MANY)))
    for ask in (*asks, lambda: file.prefix(ASKED)):
        with answers.counted():
            ask()


ASKED = pa.array([b"", b"0", b"021", b"5a", b"\xff", b"__all_partitions__"])
MANY = pa.concat_arrays([ASKED] * 10)


def open_or_refuse(data: bytes, files: Outcomes, answers: Outcomes) -> None:
    """A mutated trailer may name another codec, or a key to decrypt with."""
    with files.counted():
        try:
            decode(data, answers)
        except UnsupportedFeature as refused:
            if "compressed with" in refused.message or "encrypted" in refused.message:
                raise CorruptFile(refused.message) from refused


def test_mutated_hfiles_decode_or_are_refused_in_bounded_memory() -> None:
    rng = np.random.default_rng(20)
    files = [(data, spots(data)) for data in seeds()]
    sound = Outcomes()
    for data, _ in files:
        decode(data, sound)
    assert sound.refused == 0
    opened, answers = Outcomes(), Outcomes()
    tracemalloc.start()
    try:
        for n in range(MUTATIONS):
            open_or_refuse(mutated(*files[n % len(files)], rng), opened, answers)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    opened.assert_both(MUTATIONS // 10)
    answers.assert_both()
    assert peak < MEMORY
