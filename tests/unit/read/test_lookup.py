"""Point lookups: the rows of keys, and the files that are opened for them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.format.file_names import bucket_of_file_id
from lakebed.metadata.lookups import open_snapshot
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.read.lookup import KeyText, exists, get, locate
from lakebed.read.scan import Scan
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage
from support.golden_tables import golden


def opened(folder: Path, name: str, **properties: str) -> tuple[Snapshot, CountingStorage]:
    storage = CountingStorage(open_storage(str(golden(name).unpack(folder))))
    config = load_table_config(storage)
    recorded = {k.replace("__", "."): v for k, v in properties.items()}
    return open_snapshot(storage, TableConfig({**config.properties, **recorded})), storage


def files_opened(storage: CountingStorage) -> set[str]:
    return {p for p in storage.opened if p.endswith(".parquet") and not p.startswith(".hoodie")}


def test_get_gives_the_rows_of_the_keys_in_every_form(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    whole = Scan(snapshot).to_arrow()
    some = whole["id"].to_pylist()[::9]
    found = get(snapshot, [*some, "nobody"])
    assert found.schema.names == whole.schema.names
    assert sorted(map(repr, found.to_pylist())) == sorted(repr(r) for r in whole.to_pylist() if r["id"] in some)
    assert get(snapshot, some, columns=["QTY", "_hoodie_record_key"]).column_names == ["qty", "_hoodie_record_key"]
    assert get(snapshot, pa.array(some)).equals(get(snapshot, pa.table({"id": some})))
    assert get(snapshot, pd.DataFrame({"id": some}, index=some)).equals(get(snapshot, pa.array(some)))
    for keys in (set(some), np.array(some), pl.Series(some), pd.Series(some, index=some), pd.Index(some)):
        assert sorted(get(snapshot, keys)["id"].to_pylist()) == sorted(some)
    assert get(snapshot, []).num_rows == 0
    assert get(snapshot, pl.Series([], dtype=pl.String)).num_rows == 0
    assert get(snapshot, "nobody").num_rows == 0
    assert exists(snapshot, ["nobody", some[0], some[1]]).to_pylist() == [False, True, True]
    places = locate(snapshot, some)
    assert sorted(places["key"].to_pylist()) == sorted(some)
    ids = {(f.partition, f.file_id, f.instant) for f in snapshot.base_files()}
    assert {tuple(list(r.values())[1:]) for r in places.to_pylist()} <= ids


def test_composite_keys_are_found_in_every_form(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_complex_keys")
    row = Scan(snapshot, meta=True).to_arrow().slice(3, 1).to_pylist()[0]
    key = (row["id"], row["code"])
    found = get(snapshot, [key]).to_pylist()
    assert [r["qty"] for r in found if r["region"] == row["region"]] == [row["qty"]]
    assert get(snapshot, KeyText([row["_hoodie_record_key"]])).to_pylist() == found
    whole_path = pa.table({n: [row[n]] for n in ("id", "code", "region", "grp")})
    assert get(snapshot, whole_path).to_pylist() == [
        r for r in found if (r["region"], r["grp"]) == (row["region"], row["grp"])
    ]
    with pytest.raises(InvalidOption, match="tuple of 2 values"):
        get(snapshot, [row["id"]])


def test_composite_keys_that_differ_in_a_number_alone_are_different_keys(tmp_path: Path) -> None:
    """An empty text in a key is written as another value is, too: such keys are compared by their fields."""
    columns = pa.schema([("number", pa.int64()), ("code", pa.string()), ("city", pa.string())])
    stored = [{"number": 0, "code": "", "city": "oslo"}, {"number": 1, "code": "a", "city": "rome"}]
    table = lakebed.create(str(tmp_path / "t"), columns, key=["number", "code"], partition_by="city", index="simple")
    table.upsert(pa.Table.from_pylist(stored, columns))
    keys = [(2, ""), (0, ""), (0, "__empty__"), (1, "a"), (1, "")]
    held = [False, True, False, True, False]
    assert table.exists(keys).to_pylist() == held
    assert [table.exists([key])[0].as_py() for key in keys] == held
    somewhere = [{"number": number, "code": code, "city": "oslo"} for number, code in keys]
    assert table.exists(pa.Table.from_pylist(somewhere, columns)).to_pylist() == [False, True, False, False, False]
    assert table.locate(keys)["key"].to_pylist() == ["number:0,code:__empty__", "number:1,code:a"]


def test_partition_columns_narrow_the_search(tmp_path: Path) -> None:
    snapshot, storage = opened(tmp_path, "v9_cow_simple")
    row = Scan(snapshot).to_arrow().slice(5, 1).to_pylist()[0]
    elsewhere = "asia" if row["region"] != "asia" else "eu"
    _ = snapshot.timeline
    storage.reset()
    assert get(snapshot, pa.table({"id": [row["id"]], "region": [row["region"]]})).num_rows == 1
    assert {p.split("/")[0] for p in files_opened(storage)} == {row["region"]}
    both = pa.table({"id": [row["id"], row["id"]], "region": [elsewhere, row["region"]]})
    assert exists(snapshot, both).to_pylist() == [False, True]


@pytest.mark.parametrize("name", ["v9_cow_bucket_simple", "v8_cow_bucket_simple", "v6_cow_bucket_simple"])
def test_the_bucket_hash_names_the_files(tmp_path: Path, name: str) -> None:
    index = {
        "lakebed__index__type": "bucket",
        "lakebed__index__bucket__count": "4",
        "lakebed__index__bucket__fields": "id",
    }
    snapshot, storage = opened(tmp_path, name, **index)
    rows = Scan(snapshot, meta=True).to_arrow().to_pylist()
    for row in rows[::11]:
        storage.reset()
        found = get(snapshot, [(row["id"], row["code"])], columns=["_hoodie_record_key", "_hoodie_file_name"])
        assert row["_hoodie_file_name"] in found["_hoodie_file_name"].to_pylist()
        assert len({bucket_of_file_id(p.rpartition("/")[2].split("_")[0]) for p in files_opened(storage)}) == 1


def test_tables_without_meta_fields(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_no_meta")
    row = Scan(snapshot).to_arrow().slice(2, 1).to_pylist()[0]
    assert row in get(snapshot, [row["id"]]).to_pylist()
    assert exists(snapshot, [row["id"], "nobody"]).to_pylist() == [True, False]


def test_generated_keys_are_found_by_their_text(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_auto_keys")
    key = Scan(snapshot, meta=True).to_arrow()["_hoodie_record_key"][4].as_py()
    assert get(snapshot, KeyText([key])).num_rows == 1
    with pytest.raises(InvalidOption, match="KeyText"):
        get(snapshot, [key])


def test_values_of_another_type(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    with pytest.raises(InvalidOption, match="do not fit the key column 'id'"):
        get(snapshot, [5])


@pytest.mark.parametrize("name", ["v8_mor_event_time", "v9_mor_compaction", "v6_mor_compaction"])
def test_keys_are_found_where_log_files_are_merged(tmp_path: Path, name: str) -> None:
    snapshot, _ = opened(tmp_path, name)
    whole = Scan(snapshot, meta=True).to_arrow()
    assert any(s.log_files for s in snapshot.file_slices())
    held = whole["_hoodie_record_key"].to_pylist()
    asked = [f"k{n:04d}" for n in range(100)]
    columns = ["qty", "_hoodie_record_key", "_hoodie_commit_seqno", "region"]
    found = get(snapshot, KeyText([*asked, *held]), columns=columns)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, whole.select(columns).to_pylist()))
    assert exists(snapshot, KeyText(asked)).to_pylist() == [key in held for key in asked]
    assert sorted(locate(snapshot, KeyText(asked))["key"].to_pylist()) == sorted(k for k in asked if k in held)


def test_huge_row_groups_are_read_by_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    key = Scan(snapshot).to_arrow()["id"][3].as_py()
    expected = get(snapshot, [key])
    monkeypatch.setattr("lakebed.slices.key_rows._LARGE_ROW_GROUP", 0)
    assert get(snapshot, [key]).equals(expected)
    assert exists(snapshot, [key, "nobody"]).to_pylist() == [True, False]


def test_keys_of_another_type_are_named_by_their_type() -> None:
    moments = {"at": [datetime(2026, 1, 1, tzinfo=UTC)]}
    t = lakebed.load("memory://lookup/moments", moments, key="at")
    for key, problem in (("never", "'never'"), (datetime(2026, 1, 1), r"datetime\.datetime\(2026, 1, 1, 0, 0\)")):
        with pytest.raises(InvalidOption, match=rf"of type timestamp\[us, tz=UTC\]: {problem} is no timestamp"):
            t.get([key])
    assert t.get([datetime(2027, 1, 1, tzinfo=UTC)]).num_rows == 0


def test_keys_are_given_as_dicts_too() -> None:
    table = lakebed.create("memory://lookup/dicts", {"id": [1], "city": ["a"], "v": [1]}, key="id", partition_by="city")
    table.upsert({"id": [1, 2, 3], "city": ["a", "b", "b"], "v": [1, 2, 3]})
    assert table.get([{"id": 2}, {"id": 9}])["v"].to_pylist() == [2]
    assert table.get({"id": [1, 3]})["v"].to_pylist() == [1, 3]
    assert table.exists([{"id": 2, "city": "a"}, {"id": 2, "city": "b"}]).to_pylist() == [False, True]
    with pytest.raises(InvalidOption, match="key columns missing: id"):
        table.get([{"idd": 2}])
    assert table.delete([{"id": 2}, {"id": 9}]).deleted == 1
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(), pa.int64()])
def test_an_error_about_keys_of_another_type_shows_a_stored_key(kind: pa.DataType) -> None:
    rows = pa.table({"at": pa.array([20_000, 20_001], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)})
    table = lakebed.create(f"memory://lookup/{abs(hash(str(kind)))}", rows, key="at")
    with pytest.raises(InvalidOption) as empty:
        table.get(["x"])
    assert "A stored key is" not in str(empty.value)
    table.upsert(rows)
    first = {"int64": "20000", "date32[day]": "2024-10-04"}.get(str(kind), "1970-01-01 00:00:00.020000")
    stored = f"{first}Z" if "UTC" in str(kind) else first
    for call in (table.get, table.delete, table.locate):
        with pytest.raises(
            InvalidOption, match=f"do not fit the key column 'at' of type {kind}".replace("[", r"\[")
        ) as raised:
            call(["2026-01-01 x"])
        assert f"A stored key is {stored!r}." in raised.value.hint


TIMES = [datetime(2024, 1, 1), datetime(2024, 1, 2, 5, 30)]
KINDS = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.date32()]


def _by_day(name: str, kind: pa.DataType) -> lakebed.Table:
    """A table whose key is a time, and a table of the same rows whose key also has a text, both in memory."""
    at = pa.array(TIMES, pa.timestamp("us")).cast(kind, safe=False)
    return lakebed.load(f"memory://lookup/{name}-{abs(hash(str(kind)))}", pa.table({"at": at, "v": [1, 2]}), key="at")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["2024-01-01", date(2024, 1, 1)])
def test_a_key_of_time_is_given_as_a_date_or_a_text(kind: pa.DataType, key: Any) -> None:
    table = _by_day(f"dates-{type(key).__name__}", kind)
    for keys in ([key], pa.table({"at": [key]}), {"at": [key]}, [{"at": key}], pa.array([key])):
        assert table.get(keys)["v"].to_pylist() == [1]
    assert table.exists([key, key]).to_pylist() == [True, True]
    assert table.locate([key]).num_rows == 1
    assert [one.after["v"] for one in table.history([key]) if one.after] == [1]
    if not pa.types.is_date(kind):
        assert table.get(["2024-01-02 05:30", "2024-01-02T05:30:00"])["v"].to_pylist() == [2]
    assert table.delete([key]).deleted == 1
    assert table.to_arrow()["v"].to_pylist() == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_deleted_and_erased_by_dates(kind: pa.DataType) -> None:
    table = _by_day("erased", kind)
    assert table.erase([date(2024, 1, 1)]).tables[0].rows == 1
    assert table.to_arrow()["v"].to_pylist() == [2]
    other = _by_day("deleted", kind)
    assert other.delete(["2024-01-01", "1999-01-01"]).deleted == 1
    assert other.to_arrow()["v"].to_pylist() == [2]


def test_dates_are_parts_of_keys_of_several_columns() -> None:
    rows = pa.table({"name": ["a", "b"], "at": pa.array(TIMES, pa.timestamp("us")), "v": [1, 2]})
    table = lakebed.load("memory://lookup/several-with-dates", rows, key=["name", "at"])
    for key in (("a", "2024-01-01"), ("a", date(2024, 1, 1)), ("a", TIMES[0])):
        assert table.get([key])["v"].to_pylist() == [1]
    with pytest.raises(
        InvalidOption, match=r"'never' is no timestamp.* A stored key is 'name:a,at:2024-01-01 00:00:00'"
    ):
        table.get([("a", "never")])


@pytest.mark.parametrize("key", ["2024-01-01T00:00:00Z", datetime(2024, 1, 1, tzinfo=UTC), 5, "never"])
def test_what_is_no_local_time_is_no_key_of_local_times(key: Any) -> None:
    with pytest.raises(InvalidOption, match=r"do not fit the key column 'at'.* A stored key is '2024-01-01 00:00:00'"):
        _by_day(f"local-{key}".replace(":", "").replace(" ", ""), pa.timestamp("us")).get([key])


def test_a_repeated_key_of_time_is_shown_as_a_time() -> None:
    rows = pa.table({"at": pa.array([TIMES[1]] * 2, pa.timestamp("us")), "v": [1, 2]})
    with pytest.raises(InvalidRecord, match="2 rows have the key '2024-01-02 05:30:00'"):
        lakebed.load("memory://lookup/repeated-time", rows, key="at")
