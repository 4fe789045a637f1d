"""Defaults and generated columns of a table, in every verb that writes its rows in this process."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CheckFailed, InvalidOption, InvalidRecord, LakebedError, SchemaConflict, UnsupportedFeature
from lakebed.properties.file import update_table_config
from lakebed.storage import open_storage

UTC = dt.UTC
SCHEMA = pa.schema(
    {"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "fare": pa.float64(), "n": pa.int64(), "label": pa.string()}
)
KINDS = [("cow", "simple", 9), ("mor", "simple", 9), ("mor", "bucket", 9), ("mor", "record", 9), ("mor", "bucket", 6)]


def at(day: int, hour: int = 5) -> dt.datetime:
    return dt.datetime(2026, 1, day, hour, tzinfo=UTC)


def new_table(folder: Path, kind: str = "cow", index: str = "simple", version: int = 9, **words: Any) -> lakebed.Table:
    words.setdefault("defaults", {"fare": "0.5", "label": "'new'"})
    words.setdefault("generated", {"day": "CAST(ts AS DATE)"})
    return lakebed.create(
        str(folder / "t"),
        words.pop("schema", SCHEMA),
        key="id",
        type=kind,
        index=index,
        buckets=2 if index == "bucket" else None,
        table_version=version,
        partition_by=words.pop("partition_by", None),
        **words,
    )


def row(id: int, day: int, fare: float | None, n: int | None, label: str | None, hour: int = 5) -> dict[str, Any]:
    ts = at(day, hour)
    return {"id": id, "ts": ts, "fare": fare, "n": n, "label": label, "day": ts.date()}


def rows_of(table: lakebed.Table) -> list[dict[str, Any]]:
    return table.scan().to_arrow().sort_by("id").to_pylist()


@pytest.mark.parametrize(("kind", "index", "version"), KINDS)
def test_missing_columns_get_their_values_and_present_ones_keep_their_nulls(
    tmp_path: Path, kind: str, index: str, version: int
) -> None:
    t = new_table(tmp_path, kind, index, version)
    t.upsert({"id": [1, 2], "ts": [at(1), at(2)], "n": [1, 1]})
    t.upsert({"id": [2, 3], "ts": [at(2), at(3)], "n": [2, None], "fare": [None, 7.0], "label": [None, "x"]})
    assert rows_of(t) == [row(1, 1, 0.5, 1, "new"), row(2, 2, None, 2, None), row(3, 3, 7.0, None, "x")]


@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_every_verb_of_rows_fills_the_columns(tmp_path: Path, verb: str) -> None:
    t = new_table(tmp_path, partition_by="day")
    getattr(t, verb)(pa.table({"id": [1], "ts": pa.array([at(1)], SCHEMA.field("ts").type), "n": [4]}))
    assert rows_of(t) == [row(1, 1, 0.5, 4, "new")]
    assert t.partitions == ("2026-01-01",)


@pytest.mark.parametrize(("kind", "index", "version"), KINDS)
def test_partial_rows_keep_stored_values_and_new_keys_get_defaults(
    tmp_path: Path, kind: str, index: str, version: int
) -> None:
    t = new_table(tmp_path, kind, index, version)
    t.upsert({"id": [1, 2], "ts": [at(1), at(2)], "n": [1, 1], "fare": [3.0, None], "label": ["a", "b"]})
    t.upsert({"id": [2, 8], "n": [5, 5]}, partial=True)
    t.upsert({"id": [1, 9], "ts": [at(7), at(9)]}, partial=True)
    expected = [
        row(1, 7, 3.0, 1, "a"),
        row(2, 2, None, 5, "b"),
        {"id": 8, "ts": None, "fare": 0.5, "n": 5, "label": "new", "day": None},
        row(9, 9, 0.5, None, "new"),
    ]
    assert rows_of(t) == expected
    if kind == "mor":
        t.maintenance.compact()
        assert rows_of(t) == expected


def test_new_keys_of_partial_rows_get_generated_values_of_defaults(tmp_path: Path) -> None:
    t = new_table(tmp_path, "mor", "bucket", generated={"loud": "upper(label)"})
    t.upsert({"id": [1], "ts": [at(1)], "label": ["a"], "n": [1]})
    t.upsert({"id": [1, 2], "n": [6, 6]}, partial=True)
    assert [(r["id"], r["label"], r["loud"], r["n"]) for r in rows_of(t)] == [(1, "a", "A", 6), (2, "new", "NEW", 6)]


def test_partial_rows_with_some_sources_of_a_generated_column_are_refused(tmp_path: Path) -> None:
    t = new_table(tmp_path, generated={"total": "fare * n"})
    t.upsert({"id": [1], "ts": [at(1)], "n": [4]})
    with pytest.raises(SchemaConflict, match=r"total_generated.*Give fare, n together, or none of them"):
        t.upsert({"id": [1], "n": [5]}, partial=True)
    t.upsert({"id": [1], "n": [5], "fare": [2.0]}, partial=True)
    t.update({"n": "n + 1"})
    assert [(r["n"], r["total"]) for r in rows_of(t)] == [(6, 12.0)]


def test_rows_that_give_a_generated_column_another_value_are_refused(tmp_path: Path) -> None:
    t = new_table(tmp_path)
    rows = pa.table({"id": [1, 2], "ts": [at(1), at(2)], "n": [4, 4], "day": [at(1).date(), at(1).date()]})
    with pytest.raises(CheckFailed, match="day_generated") as refused:
        t.upsert(rows)
    assert refused.value.checks == {"day_generated": 1}
    assert refused.value.rows[0]["position"] == 1
    assert rows_of(t) == []
    t.upsert(rows.slice(0, 1))
    assert rows_of(t) == [row(1, 1, 0.5, 4, "new")]


@pytest.mark.parametrize(("kind", "index", "version"), KINDS)
def test_an_update_computes_generated_columns_again_where_their_sources_change(
    tmp_path: Path, kind: str, index: str, version: int
) -> None:
    moves = index != "record"  # which leaves rows in their partition paths
    t = new_table(tmp_path, kind, index, version, partition_by="day" if moves else None)
    t.upsert({"id": [1, 2], "ts": [at(1), at(2)], "n": [1, 1]})
    t.update({"n": "n + 1"}, where="id = 1")
    t.update({"ts": "ts + interval 3 days"}, where="id = 1")
    t.update({"fare": "DEFAULT", "label": "'z'"}, where="id = 2")
    assert rows_of(t) == [row(1, 4, 0.5, 2, "new"), row(2, 2, 0.5, 1, "z")]
    assert not moves or set(t.partitions) >= {"2026-01-04", "2026-01-02"}


@pytest.mark.parametrize("on", [None, "t.id = s.id", "t.id = s.id AND t.n >= 0"])
def test_a_merge_fills_new_rows_and_leaves_defaults_out_of_updates(tmp_path: Path, on: str | None) -> None:
    t = new_table(tmp_path)
    t.upsert({"id": [1, 2], "ts": [at(1), at(2)], "n": [1, 1], "fare": [3.0, None], "label": ["a", None]})
    source = pa.table({"id": [2, 3], "ts": [at(5), at(6)], "n": [9, 9]})
    merge = t.merge(source, on) if on else t.merge(source)
    merge.when_matched_update().when_not_matched_insert().execute()
    assert rows_of(t) == [row(1, 1, 3.0, 1, "a"), row(2, 5, None, 9, None), row(3, 6, 0.5, 9, "new")]
    merge = t.merge(source, "t.id = s.id").when_matched_update({"ts": "s.ts + interval 1 day", "label": "DEFAULT"})
    merge.when_not_matched_insert({"id": "s.id"}).execute()
    assert rows_of(t)[1:] == [row(2, 6, None, 9, "new"), row(3, 7, 0.5, 9, "new")]
    with pytest.raises(CheckFailed, match="day_generated"):
        t.merge(source).when_matched_update({"ts": "s.ts", "day": "DATE '2026-01-01'"}).execute()
    with pytest.raises(InvalidOption, match="generated from others"):
        t.merge(source).when_matched_update({"day": "DEFAULT"}).execute()


def test_the_current_time_is_one_value_for_a_write(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("seen", pa.timestamp("us", "UTC")), ("on", pa.date32())])
    t = new_table(tmp_path, schema=schema, defaults={"seen": "current_timestamp()", "on": "current_date()"})
    before = dt.datetime.now(UTC)
    t.upsert(
        {"id": list(range(1000)), "ts": [at(1)] * 1000, "n": [1] * 1000, "fare": [1.0] * 1000, "label": ["a"] * 1000}
    )
    seen = {(r["seen"], r["on"]) for r in rows_of(t)}
    assert len(seen) == 1
    ((moment, day),) = seen
    assert before <= moment <= dt.datetime.now(UTC)
    assert day == moment.date()


def test_a_condition_on_the_source_prunes_partitions_of_the_generated_column(tmp_path: Path) -> None:
    t = new_table(tmp_path, partition_by=["month", "day"], generated={"day": "CAST(ts AS DATE)", "month": "month(ts)"})
    t.upsert({"id": [1, 2, 3], "ts": [at(1), at(2), at(3)], "n": [None] * 3})
    scan = t.scan(where="ts >= '2026-01-02' and n is null")
    assert "pruned      1 file by partition" in str(scan.explain())
    assert "implied     ((`day` >= DATE '2026-01-02') OR (`day` IS NULL)) (of generated columns)" in str(scan.explain())
    assert sorted(r["id"] for r in scan.to_arrow().to_pylist()) == [2, 3]
    for where, ids, paths in (
        ("ts < '2026-01-02 05:00:00'", [1], 2),  # the day itself stays
        ("ts < '2026-01-02 05:00:01'", [1, 2], 2),
        ("ts = '2026-01-03 05:00:00'", [3], 1),
        ("ts IN ('2026-01-03 05:00:00', '2026-01-01 05:00:00')", [1, 3], 2),
        ("ts > '2026-01-02 05:00:00' OR id = 1", [1, 3], 3),
        ("ts != '2026-01-02 05:00:00'", [1, 3], 3),
    ):
        scan = t.scan(where=where)
        assert sorted(r["id"] for r in scan.to_arrow().to_pylist()) == ids, where
        pruned = scan.pruning().column("pruned_by").to_pylist()
        assert 3 - pruned.count("partition") == paths, where


def test_rows_of_a_writer_that_does_not_know_the_expression_are_found_by_the_source(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("day", pa.date32())])
    t = lakebed.create(str(tmp_path / "foreign"), schema, key="id", partition_by="day")
    t.upsert({"id": [1, 2], "ts": [at(2), at(3)], "day": [None, dt.date(2026, 1, 3)]}, partial=True)
    update_table_config(open_storage(t.uri), {"lakebed.generated.day": "CAST(ts AS DATE)"}, lambda: True)
    scan = lakebed.open(t.uri).scan(["id"], where="ts >= '2026-01-02'")
    assert "implied" in str(scan.explain())
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [1, 2]


def test_the_year_and_the_truncated_time_prune_too(tmp_path: Path) -> None:
    t = new_table(tmp_path, partition_by="year", generated={"year": "year(ts)", "hour": "date_trunc('hour', ts)"})
    t.upsert({"id": [1, 2], "ts": [dt.datetime(2025, 12, 31, 23, 59, tzinfo=UTC), at(1, 0)], "n": [1, 1]})
    scan = t.scan(where="ts >= '2026-01-01'")
    assert [r["id"] for r in scan.to_arrow().to_pylist()] == [2]
    text = str(scan.explain())
    assert "`year` >= 2026" in text
    assert "`hour` >= " in text
    assert "pruned      1 file by partition" in text


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        ({"generated": {"day": "CAST(missing AS DATE)"}}, InvalidOption, "no column 'missing'"),
        ({"generated": {"day": "current_date()"}}, InvalidOption, "another value at another time"),
        ({"generated": {"label": "'a'"}}, InvalidOption, "names no column"),
        ({"generated": {"n": "n + 1"}}, InvalidOption, "names n, which is generated itself"),
        ({"generated": {"n": "fare"}}, SchemaConflict, "column 'n' is BIGINT"),
        ({"generated": {"id": "n"}}, SchemaConflict, "in the record key"),
        ({"generated": {"n": "length(label)", "fare": "n * 2"}}, InvalidOption, "names n, which is generated"),
        ({"generated": {"fare": "n * 2.5"}, "defaults": {"fare": 1}}, InvalidOption, "a default and an expression"),
        ({"defaults": {"n": "fare"}}, InvalidOption, "is not a constant"),
        ({"defaults": {"n": "rand()"}}, InvalidOption, "is not a constant"),
        ({"defaults": {"n": "'x'"}}, SchemaConflict, "column 'n' is BIGINT"),
        ({"defaults": {"n": 1 << 70}}, (InvalidRecord, SchemaConflict), "n"),
        ({"defaults": {"n": object()}}, InvalidOption, "SQL text or a constant"),
        (
            {"defaults": {"fare": 1}, "merge": "PartialUpdateAvroPayload", "ordering": "ts"},
            UnsupportedFeature,
            "merges",
        ),
    ],
)
def test_expressions_that_no_write_could_evaluate_are_refused(
    tmp_path: Path, words: dict[str, Any], error: type[LakebedError], text: str
) -> None:
    with pytest.raises(error, match=text):
        new_table(tmp_path, **{"defaults": {}, "generated": {}, **words})
    assert not (tmp_path / "t" / ".hoodie").exists()


def test_columns_in_use_keep_their_names(tmp_path: Path) -> None:
    t = new_table(tmp_path)
    for change in (lambda: t.columns.rename("ts", "at"), lambda: t.columns.drop("ts"), lambda: t.columns.drop("day")):
        with pytest.raises(SchemaConflict, match=r"day_generated.*'day' needs it"):
            change()
    with pytest.raises(SchemaConflict, match=r"has the default 0\.5"):
        t.columns.rename("fare", "price")
    t.columns.drop_default("fare")
    t.columns.rename("fare", "price")
    with pytest.raises(InvalidOption, match="generated column 'day'"):
        t.checks.drop("day_generated")
    with pytest.raises(InvalidOption, match="no setting"):
        t.configure({"lakebed.default.n": "1"})


def test_a_default_is_set_dropped_and_shown(tmp_path: Path) -> None:
    t = new_table(tmp_path)
    assert t.columns.set_default("N", dt.date(2026, 1, 1).year).default == "2026"
    t.upsert({"id": [1], "ts": [at(1)]})
    assert t.columns.drop_default("n").default == ""
    with pytest.raises(SchemaConflict, match="lacks the table's column n"):
        t.upsert({"id": [2], "ts": [at(1)]})
    t.upsert({"id": [2], "ts": [at(1)], "n": [None]})
    assert [r["n"] for r in rows_of(t)] == [2026, None]
    with pytest.raises(InvalidOption, match="has no default"):
        t.columns.drop_default("n")
    with pytest.raises(SchemaConflict, match="is generated"):
        t.columns.set_default("day", "DATE '2026-01-01'")
    t.columns.add("tip", "decimal(8,2)", default="1.5")
    t.upsert({"id": [3], "ts": [at(1)], "n": [1]})
    assert [str(r["tip"]) for r in rows_of(t)] == ["None", "None", "1.50"]
    facts = {c.name: (c.default, c.generated) for c in t.columns}
    assert facts["tip"] == ("1.5", "")
    assert facts["day"] == ("", "CAST(ts AS DATE)")
    assert facts["fare"] == ("0.5", "")


def test_a_column_that_the_data_lacks_has_the_type_of_its_expression(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "ts": pa.array([at(1), at(2)], pa.timestamp("us", "UTC"))})
    t = lakebed.load(
        str(tmp_path / "t"),
        rows,
        key="id",
        partition_by="day",
        generated={"day": "CAST(ts AS DATE)"},
        defaults={"city": "'Oslo'", "n": 7},
        progress=False,
    )
    assert dict(zip(t.schema.names, t.schema.types, strict=True)) == {
        "id": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "city": pa.string(),
        "n": pa.int32(),
        "day": pa.date32(),
    }
    assert rows_of(t) == [{"id": id, "ts": at(id), "city": "Oslo", "n": 7, "day": at(id).date()} for id in (1, 2)]


def test_data_of_a_wrong_type_is_refused_by_its_column(tmp_path: Path) -> None:
    t = new_table(tmp_path)
    with pytest.raises(SchemaConflict, match="ts"):
        t.upsert({"id": [1], "ts": [[1]]})
    assert rows_of(t) == []


def test_sums_of_whole_numbers_are_whole_numbers(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("next", pa.int64()), ("twice", pa.int32())])
    t = new_table(tmp_path, schema=schema, generated={"next": "id + 1", "twice": "2 * id"})
    t.upsert({"id": [1, 2], "ts": [at(1), at(2)], "n": [None, None], "next": [2, 3]}, partial=True)
    assert [(r["id"], r["next"], r["twice"]) for r in rows_of(t)] == [(1, 2, 2), (2, 3, 4)]
    assert [r["id"] for r in t.scan(where="next > 2 and twice = 4").to_arrow().to_pylist()] == [2]
    with pytest.raises(CheckFailed, match="next_generated"):
        t.upsert({"id": [3], "ts": [at(1)], "next": [5]}, partial=True)
    with pytest.raises(InvalidRecord, match="next"):
        t.upsert({"id": [2**63 - 1], "ts": [at(1)]}, partial=True)
    with pytest.raises(SchemaConflict, match="gives"):
        new_table(tmp_path / "cut", schema=schema, generated={"next": "id / 2"})
