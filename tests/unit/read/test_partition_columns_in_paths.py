"""Tables whose partition columns are left out of their files: every read takes the values from the paths.

Deletes of real Hudi name the partition columns in the schema of their commit, though their files lack them as well.
The interop layer has its clustering, which writes nulls for them.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.metadata.lookups import open_snapshot
from lakebed.schema.avro import arrow_to_avro
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.bodies.commit import encode_commit

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("hour", pa.int32()), ("text", pa.string())])
LEFT_OUT = {
    "hoodie.datasource.write.drop.partition.columns": True,
    "hoodie.datasource.write.hive_style_partitioning": True,
    "hoodie.table.cdc.enabled": True,
}
Row = tuple[Any, ...]


def row(id: int, text: str) -> Row:
    return (id, f"2024-01-0{id % 2 + 1}", id % 3, text)


def rows(ids: range, text: str) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row(n, text), strict=True)) for n in ids], SCHEMA)


def new_table(type_: Any, version: int, index: str) -> tuple[Table, list[str]]:
    """Three commits: 12 rows, an upsert of four, and a delete of two, whose commit names the partition columns."""
    t = lakebed.create(
        f"memory://left-out/{uuid.uuid4().hex}",
        SCHEMA,
        key="id",
        partition_by=["day", "hour"],
        type=type_,
        index=index,
        table_version=version,
        properties=LEFT_OUT,
    )
    commits = [t.upsert(rows(range(12), "a")), t.upsert(rows(range(4), "b")), t.delete([0, 5])]
    name_partition_columns(t)
    return lakebed.open(t.uri), [done.instant for done in commits]


def name_partition_columns(t: Table) -> None:
    """Write the newest commit again as real Hudi writes a delete."""
    storage = open_storage(t.uri)
    snapshot = open_snapshot(storage)
    newest = snapshot.commits[-1]
    metadata = snapshot.timeline.commit_metadata(newest)
    schema = arrow_to_avro(pa.schema([SCHEMA.field(n) for n in ("id", "text", "day", "hour")]), "t")
    assert "day" not in json.dumps(metadata.table_schema)
    named = replace(metadata, extra={**metadata.extra, "schema": schema})
    path = f"{snapshot.config.timeline_path}/{newest.file_name}"
    storage.write(path, encode_commit(named, snapshot.config.version, newest.action))


def visible_rows(found: pa.Table) -> list[Row]:
    return sorted((one["id"], one["day"], one["text"], int(one["hour"])) for one in found.to_pylist())


def expected(model: dict[int, str]) -> list[Row]:
    return sorted((row(n, text)[0], row(n, text)[1], text, n % 3) for n, text in model.items())


@pytest.mark.parametrize("index", ["simple", "bucket"])
@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_values_come_from_the_paths(version: int, type_: str, index: str) -> None:
    t, (first, second, _) = new_table(type_, version, index)
    before = dict.fromkeys(range(12), "a")
    middle = before | dict.fromkeys(range(4), "b")
    after = {n: text for n, text in middle.items() if n not in (0, 5)}
    assert visible_rows(t.scan().to_arrow()) == expected(after)
    assert visible_rows(t.scan(as_of=first).to_arrow()) == expected(before)
    assert visible_rows(t.changes("000").to_arrow()) == expected(after)
    assert visible_rows(t.changes(first, second).to_arrow()) == expected(dict.fromkeys(range(4), "b"))
    assert visible_rows(t.changes(first).to_arrow()) == expected(dict.fromkeys(range(1, 4), "b"))
    assert visible_rows(t.get(list(range(12)))) == expected(after)
    for condition, kept in (("day = '2024-01-02'", 1), ("hour = '2' AND id > 4", None)):
        part = {n: s for n, s in after.items() if (n % 2 == kept if kept is not None else n % 3 == 2 and n > 4)}
        assert visible_rows(t.scan(where=condition).to_arrow()) == expected(part)
        assert visible_rows(t.changes("000", where=condition).to_arrow()) == expected(part)
        assert t.scan(where=condition).count() == len(part)
    assert {one["partition_path"] for one in t.locate([1, 2]).to_pylist()} == {
        f"day={day}/hour={hour}" for _, day, hour, _ in (row(1, ""), row(2, ""))
    }
    changes = t.cdc("000").to_arrow().to_pylist()
    for one in changes:
        for side in ("before", "after"):
            image = one[side]
            if image is not None:
                image = json.loads(image) if isinstance(image, str) else image
                assert (image["day"], int(image["hour"])) == row(image["id"], "")[1:3]
    t.upsert(rows(range(4, 7), "c"))
    assert visible_rows(lakebed.open(t.uri).scan().to_arrow()) == expected(after | dict.fromkeys(range(4, 7), "c"))


TYPED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "times": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 1, 1, 1, 2, 3, 4), None]),
    "moments": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC), None]),
    "milliseconds": (pa.timestamp("ms"), [datetime(2024, 1, 1, 1, 2, 3, 4000), datetime(1960, 1, 1), None]),
    "bytes": (pa.binary(), [b"a", b"\xff\x00", None]),
    "days": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "decimals": (pa.decimal128(38, 18), [Decimal("1E-18"), Decimal("-1.5"), None]),
    "doubles": (pa.float64(), [-0.0, 1e300, None]),
    "flags": (pa.bool_(), [True, False, None]),
}


@pytest.mark.parametrize("hive", [True, False])
@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("kind", TYPED)
def test_values_of_every_type_come_back_from_their_path(kind: str, type_: Any, hive: bool) -> None:
    stored, values = TYPED[kind]
    given = pa.table({"id": range(3), "at": pa.array(values, stored), "n": [0, 1, 2]})
    properties = LEFT_OUT | {"hoodie.datasource.write.hive_style_partitioning": hive}
    uri = f"memory://left-out/{uuid.uuid4().hex}"
    t = lakebed.create(
        uri, given.schema, key="id", partition_by="at", type=type_, properties=properties, index="simple"
    )
    t.upsert(given)
    for _ in range(2):
        found = t.to_arrow(columns=["id", "at", "n"]).sort_by("id")
        assert found.to_pylist() == given.to_pylist()
        assert list(map(str, found["at"])) == list(map(str, given["at"]))  # zero is not minus zero
        assert t.get([1])["at"].to_pylist() == [values[1]]
        for n, value in enumerate(values):
            where = pc.field("at").is_null() if value is None else pc.field("at") == pa.scalar(value, stored)
            assert t.to_arrow(where=where)["id"].to_pylist() == [n]
        assert t.upsert(given).inserted in (0, None)


PRINTED: list[tuple[pa.DataType, dict[str, Any]]] = [
    (
        pa.string(),
        {
            "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
            "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
            "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
            "hoodie.keygen.timebased.output.dateformat": "yyyyMM",
        },
    ),
    (
        pa.timestamp("us", "UTC"),
        {"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": True},
    ),
]


@pytest.mark.parametrize(("stored", "generator"), PRINTED, ids=["formatted", "consistent"])
def test_a_table_whose_paths_print_times_otherwise_keeps_the_column_in_its_files(
    stored: pa.DataType, generator: dict[str, Any]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", stored)])
    uri = f"memory://left-out/{uuid.uuid4().hex}"
    with pytest.raises(InvalidOption, match="'at' have its times as printed texts"):
        lakebed.create(uri, schema, key="id", partition_by="at", properties=generator | LEFT_OUT)
    assert not lakebed.list_tables(uri, depth=0)
    t = lakebed.create(uri, schema, key="id", partition_by="at", properties=generator)
    value = "2024-01-31" if stored == pa.string() else datetime(2024, 1, 31, 1, 2, 3, 4, tzinfo=UTC)
    t.upsert(pa.table({"id": [1], "at": pa.array([value], stored)}))
    assert t.to_arrow().to_pylist() == [{"id": 1, "at": value}]


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_times_that_only_paths_have_are_read_as_their_printed_texts(
    monkeypatch: pytest.MonkeyPatch, type_: Any, version: int
) -> None:
    # lakebed makes no such table, real Hudi does
    monkeypatch.setattr("lakebed.operations.create.printed_partition_fields", lambda *_: [])
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64())])
    table = lakebed.create(
        f"memory://left-out/{uuid.uuid4().hex}",
        schema,
        key="id",
        partition_by="at",
        type=type_,
        index="bucket",
        buckets=1,
        table_version=version,
        properties={
            "hoodie.datasource.write.drop.partition.columns": True,
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
        },
    )
    table.upsert(pa.table({"id": [1, 2], "at": [1_700_000_000_000, 1_700_100_000_000]}))
    both = [{"id": 1, "at": "2023-11-14"}, {"id": 2, "at": "2023-11-16"}]
    assert table.schema.field("at").type == pa.string()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == both
    assert table.changes("000").to_arrow().sort_by("id").to_pylist() == both
    assert table.get([2]).to_pylist() == both[1:]
    assert table.scan(where="at < '2023-11-15'").to_arrow().to_pylist() == both[:1]
    updated = table.upsert(pa.table({"id": [1], "at": [1_700_000_000_001]})).updated
    assert updated == (1 if type_ == "cow" else None)  # a log file takes the row without a look
    assert table.delete(where="at > '2023-11-15'").deleted == 1
    assert table.scan().to_arrow().to_pylist() == both[:1]


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_updates_and_merges_are_refused_by_name_where_files_lack_the_partition_columns(type_: Any) -> None:
    t, _ = new_table(type_, 9, "simple")
    before = visible_rows(t.scan().to_arrow())
    for run in (
        lambda: t.update({"text": "'x'"}, where="id = 1"),
        lambda: t.update({"text": "'x'"}, where="hour = 1"),
        lambda: t.merge(rows(range(3), "m"), "id").when_matched_update().execute(),
    ):
        with pytest.raises(UnsupportedFeature, match="leaves partition columns out of its files"):
            run()
    assert visible_rows(t.scan().to_arrow()) == before
