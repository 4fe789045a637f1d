"""What tasks tell of keys, and the records of indexes that come out of it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.metadata_kinds import record_index
from lakebed.metadata_kinds.key_changes import GroupChanges, KeyChanges, as_bytes, from_bytes, secondary_text
from lakebed.metadata_kinds.record_index import key_records
from lakebed.metadata_kinds.registry import parse_index_name, remembered_indexes, remembered_property
from lakebed.metadata_kinds.secondary_index import secondary_index_records
from lakebed.metadata_records.records import record_form, record_schema

FILE = "30c43baa-ebd7-4580-87eb-21a41128c073-{}"
INSTANT = "20261121024324315"
FORM = record_form(9)


def batch(**columns: object) -> pa.RecordBatch:
    key = columns.pop("key")
    return pa.RecordBatch.from_pydict({"_hoodie_record_key": key, **columns})


def test_rows_that_stay_as_they_are_are_left_out() -> None:
    changes = KeyChanges(("v",))
    changes.added(batch(key=["a"], v=[1]))
    changes.removed(batch(key=["b"], v=[2]))
    changes.updated(
        batch(key=["c", "d", "e", "f"], v=[3, 4, None, None]), batch(key=["c", "d", "e", "f"], v=[3, 5, 6, None])
    )
    changes.added(batch(key=[], v=pa.array([], pa.int64())))
    table = from_bytes(as_bytes(changes.table(), compressed=True))
    assert table.to_pydict() == {
        "key": ["a", "b", "d", "e"],
        "was": [False, True, True, True],
        "is": [True, False, True, True],
        "was.v": [None, "2", "4", None],
        "is.v": ["1", None, "5", "6"],
    }
    plain = KeyChanges()
    plain.updated(batch(key=["c"]), batch(key=["c"]))
    assert plain.table().num_rows == 0
    assert changes.columns == ["_hoodie_record_key", "v"]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array(["x", None]), ["x", None]),
        (pa.array(["x"]).dictionary_encode(), ["x"]),
        (pa.array([-5, None], pa.int16()), ["-5", None]),
        (pa.array([1e10, float("nan"), -0.0]), ["1.0E10", "NaN", "-0.0"]),
        (pa.array([date(1970, 1, 2), None]), ["1", None]),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC")), ["1000000"]),
    ],
)
def test_values_as_secondary_indexes_hold_them(values: pa.Array, texts: list[str | None]) -> None:
    assert secondary_text(values).to_pylist() == texts


@pytest.mark.parametrize("values", [pa.array([True]), pa.array([b"x"]), pa.array([Decimal("1.5")]), pa.array([[1]])])
def test_types_without_a_secondary_index(values: pa.Array) -> None:
    with pytest.raises(UnsupportedFeature, match="secondary index"):
        secondary_text(values)


def group(partition: str, number: int, came: list[str], went: list[str], fields: tuple[str, ...] = ()) -> GroupChanges:
    changes = KeyChanges(fields)
    changes.added(batch(key=pa.array(came, pa.string()), **{f: ["new"] * len(came) for f in fields}))
    changes.removed(batch(key=pa.array(went, pa.string()), **{f: ["old"] * len(went) for f in fields}))
    return GroupChanges(partition, FILE.format(number), changes.table())


def test_an_insert_wins_over_a_delete_and_the_last_of_two_inserts() -> None:
    said = key_records(
        [group("p", 0, ["a", "b"], ["c"]), group("q", 1, ["b", "c"], ["d"])], INSTANT, FORM, partitioned=False
    )
    decoded = record_index.decode(said.keys, said.values, record_schema(FORM)).to_pylist()
    assert {(r["key"], r["partition"], r["file_id"][-1]) for r in decoded} == {
        ("a", "p", "0"),
        ("b", "q", "1"),
        ("c", "q", "1"),
    }
    assert set(said.deleted.to_pylist()) == {"c", "d"}  # whoever routes them leaves what is inserted out
    assert said.data_partitions is None


def test_keys_of_different_partitions_are_kept_apart() -> None:
    said = key_records([group("p", 0, ["a"], ["b"]), group("q", 1, ["a"], ["b"])], INSTANT, FORM, partitioned=True)
    assert sorted(zip(said.keys.to_pylist(), said.data_partitions.to_pylist(), strict=True)) == [("a", "p"), ("a", "q")]
    assert sorted(zip(said.deleted.to_pylist(), said.deleted_partitions.to_pylist(), strict=True)) == [
        ("b", "p"),
        ("b", "q"),
    ]


@pytest.mark.parametrize(("version", "nulls"), [(2, ["\0$k"]), (1, [])])
def test_records_without_a_value(version: int, nulls: list[str]) -> None:
    changes = KeyChanges(("v",))
    changes.added(batch(key=["k"], v=pa.array([None], pa.string())))
    changes.removed(batch(key=["old"], v=pa.array([None], pa.string())))
    changes.updated(batch(key=["u"], v=["x$y"]), batch(key=["u"], v=pa.array([None], pa.string())))
    said = secondary_index_records(
        [GroupChanges("", FILE.format(0), changes.table())], "v", FORM, index_version=version
    )
    assert said.keys.to_pylist() == nulls + ["\0$u"] * len(nulls)
    assert said.deleted.to_pylist() == ["\0$old"] * len(nulls) + ["x\\$y$u"]


def test_no_changed_key_gives_no_record() -> None:
    said = key_records([], INSTANT, FORM, partitioned=False)
    assert (len(said.keys), len(said.values), len(said.deleted)) == (0, 0, 0)
    assert len(secondary_index_records([], "v", FORM, index_version=2).keys) == 0


def test_names_of_indexes_are_parsed_and_printed() -> None:
    names = [
        parse_index_name(text)
        for text in ("record_index", "record", "record_index:partitioned", "a.b", "secondary:files2")
    ]
    assert [str(n) for n in names] == [
        "record_index",
        "record_index",
        "record_index:partitioned",
        "secondary:a.b",
        "secondary:files2",
    ]
    assert names[3].partition == "secondary_index_a_b"
    assert remembered_indexes(remembered_property(names)) == names
    assert remembered_property([]) == {}
    for wrong in ("", "files", "secondary_index_x", "expr_index_x"):
        with pytest.raises(InvalidOption):
            parse_index_name(wrong)
