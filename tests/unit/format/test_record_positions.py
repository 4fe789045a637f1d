"""Record positions: the headers of real Hudi decoded and encoded again; containers of all kinds; broken ones."""

from __future__ import annotations

import base64
import random
import struct
from contextlib import suppress

import numpy as np
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.log_file import HeaderKey, decode_positions, encode_positions, read_blocks
from support.golden_tables import GoldenTable, golden_tables, spread

with_logs = pytest.mark.parametrize("table", spread(golden_tables(lambda t: t.type == "mor")), ids=str)


@with_logs
def test_positions_of_real_tables_are_written_as_hudi_writes_them(table: GoldenTable) -> None:
    for name, data in table.files().items():
        for block in read_blocks(data, name) if ".log." in name else []:
            header = block.header(HeaderKey.RECORD_POSITIONS)
            if header is not None:
                assert encode_positions(decode_positions(header, 10_000)) == header


@pytest.mark.parametrize(
    "positions",
    [
        [],
        [65535],
        range(70_000),
        range(0, 300_000, 2),
        range(0, 10**7, 1009),
        [*range(5), 2**32 - 1, 2**32, 2**40],
        [*range(10), *range(65_536, 200_000, 3), *range(262_144, 300_000), 400_000],
    ],
    ids=["none", "one", "runs", "bitmaps", "arrays", "beyond 32 bits", "mixed"],
)
def test_positions_come_back(positions: range) -> None:
    decoded = decode_positions(encode_positions(positions), len(positions))
    assert decoded.tolist() == list(positions)


def test_positions_that_are_not_ascending_are_refused() -> None:
    for wrong in ([2, 1], [1, 1], [-1]):
        with pytest.raises(ValueError, match="ascending"):
            encode_positions(wrong)


@pytest.mark.rest
def test_more_positions_than_records_are_refused_before_they_are_made() -> None:
    header = encode_positions(range(10_000_000))
    assert len(header) < 3000
    with pytest.raises(CorruptFile, match="more of them than records"):
        decode_positions(header, 100, "a.log", 12)


def containers(*bodies: tuple[int, bytes]) -> bytes:
    """One bitmap of containers that tell of so many values."""
    heads = b"".join(struct.pack("<HH", key, count - 1) for key, (count, _) in enumerate(bodies))
    at = 8 + 8 * len(bodies)
    places = [at + sum(len(body) for _, body in bodies[:n]) for n in range(len(bodies))]
    front = struct.pack("<QIII", 1, 0, 12346, len(bodies)) + heads + struct.pack(f"<{len(places)}I", *places)
    return front + b"".join(body for _, body in bodies)


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        struct.pack("<Q", 1 << 60),
        struct.pack("<Q", 1 << 60) + b"\0" * 64,
        struct.pack("<QII", 1, 0, 12347 | 0xFFFF << 16),
        containers((4097, b"\xff" * 8192)),
        containers(*[(4097, b"\xff" * 8192)] * 60),
        containers((4096, b"\1\0")),
        containers((3, struct.pack("<HHH", 9, 3, 9))),
        struct.pack("<QIHHBHHH", 1, 0, 12347, 0, 1, 0, 9, 3) + struct.pack("<HH", 60_000, 65_535) * 3,
        struct.pack("<QIIIHHIH", 1, 1 << 31, 12346, 1, 0, 0, 16, 7),
    ],
    ids=[
        "nothing",
        "bitmaps",
        "empty bitmaps",
        "containers",
        "one count",
        "counts",
        "short",
        "order",
        "runs",
        "64 bits",
    ],
)
def test_headers_with_wrong_positions_are_refused(hostile: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"a\.log.*offset 12"):
        decode_positions(base64.b64encode(hostile).decode(), 1 << 40, "a.log", 12)


def test_broken_positions_raise_or_are_ascending() -> None:
    rng = random.Random(17)
    whole = base64.b64decode(encode_positions([*range(10), *range(100, 9000, 2), *range(65_536, 65_700), 2**33]))
    for _ in range(3000):
        broken = bytearray(whole)
        if rng.random() < 0.3:
            del broken[rng.randrange(len(broken)) :]
        else:
            for _ in range(rng.randint(1, 3)):
                broken[rng.randrange(min(len(broken), 80) if rng.random() < 0.7 else len(broken))] = rng.randrange(256)
        header = base64.b64encode(bytes(broken)).decode()
        with suppress(CorruptFile):
            found = decode_positions(header, 6000, "a.log", 0)
            assert len(found) <= 6000
            assert (np.diff(found) > 0).all()
