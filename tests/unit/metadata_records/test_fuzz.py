"""Damaged values: a decoded table or `CorruptFile`, whatever the bytes are. LAKEBED_FUZZ=all tries more of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakebed.metadata_kinds import bloom_filters, files, record_index, secondary_index
from lakebed.metadata_records import stats_codec
from support.metadata_hfiles import HFile, hfiles
from support.outcomes import Outcomes
from support.sampling import FUZZ, whole

ROUNDS = 4000 if whole(FUZZ) else 200
Decode = Callable[[pa.Array, Any, str], Any]
FORMS: list[tuple[str, Decode]] = [
    ("files", files.decode),
    ("column_stats", stats_codec.decode),
    ("bloom_filters", bloom_filters.decode),
    ("record_index", record_index.decode),
    ("secondary_index_idx_name", secondary_index.decode),
    ("expr_index_idx_at", stats_codec.decode),
]


def samples(partition: str) -> list[HFile]:
    found = [file for file in hfiles("v9_cow_mdt_all") if file.partition == partition and len(file.keys)]
    older = [file for file in hfiles("v6_mor_mdt_basic") if file.partition == partition and len(file.keys)]
    return found[:3] + older[:2]


def damaged(value: bytes) -> bytes:
    data = bytearray(value)
    for _ in range(random.randint(1, 4)):
        kind = random.random()
        at = random.randrange(len(data)) if data else 0
        if not data or kind < 0.15:
            data[at:at] = random.randbytes(random.randint(1, 12))
        elif kind < 0.3:
            del data[at : at + random.randint(1, 9)]
        elif kind < 0.6:
            data[at] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        else:
            data[at] ^= 1 << random.randrange(8)
    return bytes(data)


@pytest.mark.parametrize(("partition", "decode"), FORMS, ids=[partition for partition, _ in FORMS])
def test_damaged_values_decode_or_are_refused(partition: str, decode: Decode) -> None:
    random.seed(partition)
    whole = [(file, file.values.to_pylist()) for file in samples(partition)]
    outcomes = Outcomes()
    for _ in range(ROUNDS):
        file, values = random.choice(whole)
        changed = list(values)
        for _ in range(random.choice([1, 1, 2, len(changed)])):
            at = random.randrange(len(changed))
            changed[at] = damaged(changed[at])
        with outcomes.counted():
            decode(file.keys, pa.array(changed, pa.binary()), file.schema)
    outcomes.assert_both()


def test_damaged_schemas_decode_or_are_refused() -> None:
    random.seed(3)
    file = samples("files")[0]
    outcomes = Outcomes()
    for _ in range(40):
        schema = damaged(file.schema.encode()).decode("utf-8", "replace")
        with outcomes.counted():
            files.decode(file.keys, file.values, schema)
    outcomes.assert_both()


def test_damaged_secondary_keys_decode_or_are_refused() -> None:
    random.seed(4)
    outcomes = Outcomes()
    file = samples("secondary_index_idx_name")[0]
    for _ in range(200):
        keys = file.keys.to_pylist()
        at = random.randrange(len(keys))
        keys[at] = random.choice(["", "$", "\\$", "\0", "a\\", f"a\\$b${keys[at]}", keys[at][::-1]])
        with outcomes.counted():
            secondary_index.decode(pa.array(keys), file.values, file.schema)
    outcomes.assert_both()
