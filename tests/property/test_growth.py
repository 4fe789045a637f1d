"""Random upserts, deletes, reads and services of a table whose buckets grow while it is written, against a dict."""

from __future__ import annotations

import random
from typing import Any, Literal, cast

import pytest

import lakebed
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import bucket_ids
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from support.sampling import HISTORIES, todays_of
from support.write_tables import SCHEMA, rows

Model = dict[int, tuple[str, str, int]]
CITIES = ("oslo", "rome", "é/x")
TURNS = 14
CASES = todays_of((9, 8, 6), ("cow", "mor"), (True, False), (0, 1), parts=24, variable=HISTORIES)


@pytest.mark.parametrize(("version", "kind", "by_path", "seed"), CASES)
def test_a_table_that_grows_holds_what_a_dict_holds(version: int, kind: str, by_path: bool, seed: int) -> None:
    dice = random.Random(f"{version} {kind} {by_path} {seed}")
    table = lakebed.create(
        f"memory://growth-{version}-{kind}-{by_path}-{seed}/t",
        SCHEMA,
        key="id",
        partition_by="city" if by_path else None,
        ordering="ts",
        type=cast("Literal['cow', 'mor']", kind),
        index="bucket",
        buckets=1 if by_path else dice.randrange(1, 4),
        sort=dice.choice(["key", "none"]),
        table_version=version,
        properties={
            "hoodie.compact.inline": dice.random() < 0.5,
            "hoodie.compact.inline.max.delta.commits": 3,
            "lakebed.index.bucket.grow": True,
            # a file of few rows takes 3,000 bytes
            "lakebed.index.bucket.advised.bytes": 3400 if by_path else 4500,
        },
    )
    model: Model = {}
    grown = 0
    checkpoint = "earliest"
    try:
        for turn in range(TURNS):
            written = _step(table, model, dice, turn)
            if written is None:
                continue
            grown += len(written.bucket_changes)
            _check(table, model, dice)
            # each row that was written and no other
            changes = lakebed.open(table.uri).changes(checkpoint)
            found = {row["id"] for row in changes.to_arrow().to_pylist()}
            assert found == {row["id"] for row in _written_by(table, written.instant)}
            checkpoint = changes.end
        assert grown
        assert lakebed.open(table.uri).indexes.verify().ok
    finally:
        MemoryStorage.drop(table.uri.split("/")[2])


def _step(table: Table, model: Model, dice: random.Random, turn: int) -> lakebed.WriteResult | None:
    """One write, applied to the model too; None for a service."""
    table = lakebed.open(table.uri)
    what = dice.choice(["upsert", "upsert", "upsert", "few", "delete", "service"])
    if what == "service":
        if kind_of(table) == "mor":
            table.maintenance.compact()
        table.maintenance.clean()
        return None
    if what == "delete":
        keys = dice.sample(sorted(model), min(len(model), 15))
        for key in keys:
            del model[key]
        return table.delete(keys) if keys else None
    ids = dice.sample(range(40 * turn + 100), 3 if what == "few" else 60)
    batch = [(n, CITIES[n % 3], f"{dice.random():.17f}" * 3, _time(n, model, turn, dice)) for n in ids]
    for key, city, text, ts in batch:
        if key not in model or model[key][2] <= ts:
            model[key] = (city, text, ts)
    return table.upsert(rows(*batch))


def _time(key: int, model: Model, turn: int, dice: random.Random) -> int:
    """An ordering value: later than all before, or, of a key that is there, maybe earlier."""
    return 10 * turn - dice.choice([0, 0, 15]) if key in model else 10 * turn


def kind_of(table: Table) -> str:
    return table.opened.snapshot().config.table_type


def _written_by(table: Table, instant: str) -> list[dict[str, Any]]:
    found = lakebed.open(table.uri).scan(meta=True).to_arrow().to_pylist()
    return [row for row in found if row["_hoodie_commit_time"] == instant]


def _check(table: Table, model: Model, dice: random.Random) -> None:
    """The rows of the table are those of the model, each in the bucket of its key."""
    table = lakebed.open(table.uri)
    found = table.scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted((key, *row) for key, row in model.items())
    keys = dice.sample(sorted(model), min(len(model), 5))
    assert {row["id"]: row["v"] for row in table.get(keys).to_pylist()} == {key: model[key][1] for key in keys}
    snapshot = table.opened.snapshot()
    table.indexes.index.check(snapshot)
    hashing = table.indexes.index.hashing
    assert hashing is not None
    assert hashing.key_hash is not None
    for one in snapshot.file_slices():
        count = hashing.key_hash.in_partition(one.partition).groups
        for batch in snapshot.reader.read(one, ["_hoodie_record_key"]):
            numbers = set(bucket_ids(batch.column(0), ["id"], count).tolist())
            assert numbers <= {bucket_of_file_id(one.file_id)}
