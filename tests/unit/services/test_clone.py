"""Clones: the rows of another table without a copy or as a copy; writes to either never touch the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CheckFailed, InvalidOption, TableExists, UnsupportedFeature, ValidationFailed
from support.bootstrapped import digests

FIRST = {"id": [1, 2, 3, 4], "city": ["Oslo", "Rome", "Oslo", "Rome"], "fare": [1.0, 2.0, 3.0, 4.0], "ts": [1, 1, 1, 1]}
BUCKETS = {"index": "bucket", "buckets": 2}
SHALLOW: dict[str, dict[str, Any]] = {
    "cow, simple": {"type": "cow", "index": "simple"},
    "cow, bucket, version 8": {"type": "cow", "table_version": 8, **BUCKETS},
    "mor, bucket": {"type": "mor", **BUCKETS},
    "mor, bloom, version 6": {"type": "mor", "index": "bloom", "table_version": 6},
    "cow, global": {"type": "cow", "index": "global_simple"},
    "mor, hive style": {"properties": {"hoodie.datasource.write.hive_style_partitioning": True}, "type": "mor"},
}
DEEP = SHALLOW | {
    "cow, record": {"type": "cow", "index": "record"},
    "mor, consistent": {"type": "mor", "index": "consistent", "buckets": 2},
}


def created(folder: Path, **settings: Any) -> lakebed.Table:
    kind: dict[str, Any] = {"index": "simple"} | settings
    t = lakebed.create(str(folder / "source"), FIRST, key="id", partition_by="city", ordering="ts", **kind)
    t.upsert(FIRST)
    return t


def fares(t: lakebed.Table) -> dict[int, float]:
    rows = lakebed.open(t.uri).scan().to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["fare"] for row in rows}


def of_both(source: lakebed.Table, clone: lakebed.Table, expected: Mapping[int, float]) -> None:
    """Both tables have these rows; then each is written to, and neither sees what the other got."""
    assert fares(source) == fares(clone) == expected
    for turn, (one, other) in enumerate(((clone, source), (source, clone), (clone, source))):
        of_one, of_other, before = fares(one), fares(other), digests(Path(other.uri))
        new = {
            "id": [1, 2, 50 + turn],
            "city": ["Oslo", "Rome", "Bonn"],
            "fare": [10.0, 20.0, 5.0],
            "ts": [2 + turn] * 3,
        }
        one.upsert(new)
        one.delete([3, 4])
        of_one = {k: v for k, v in of_one.items() if k not in (3, 4)} | {1: 10.0, 2: 20.0, 50 + turn: 5.0}
        assert fares(one) == of_one
        assert one.get([1, 2], columns=["fare"])["fare"].to_pylist() in ([10.0, 20.0], [20.0, 10.0])
        assert fares(other) == of_other
        assert digests(Path(other.uri)) == before
        assert one.indexes.verify().ok


@pytest.mark.parametrize("table", SHALLOW)
def test_a_shallow_clone_has_the_rows_and_lives_by_itself(table: str, tmp_path: Path) -> None:
    source = created(tmp_path, **SHALLOW[table])
    source.upsert({"id": [2], "city": ["Rome"], "fare": [2.5], "ts": [2]})
    if source.properties["hoodie.table.type"] == "MERGE_ON_READ":
        source.maintenance.compact()
    before = digests(tmp_path / "source")
    clone = source.clone(str(tmp_path / "clone"))
    assert clone.loaded is not None
    assert (clone.loaded.inserted, clone.name, clone.schema.equals(source.schema)) == (4, "clone", True)
    after = digests(tmp_path / "source")
    assert {path for path in before if after[path] != before[path]} <= {".hoodie/.locks/table_lock.json"}
    last = source.timeline.last
    assert last is not None
    assert [(s.name, s.instant) for s in source.savepoints] == [(f"clone {clone.opened.storage.url()}", last.time)]
    of_both(source, clone, {1: 1.0, 2: 2.5, 3: 3.0, 4: 4.0})
    clone.maintenance.cluster()
    assert clone.count() == len(fares(clone))


@pytest.mark.parametrize("table", DEEP)
def test_a_deep_clone_is_a_copy_also_of_rows_in_log_files(table: str, tmp_path: Path) -> None:
    source = created(tmp_path, **DEEP[table])
    source.upsert({"id": [2], "city": ["Rome"], "fare": [2.5], "ts": [2]})
    clone = source.clone(str(tmp_path / "clone"), deep=True)
    assert len(source.savepoints) == 0
    of_both(source, clone, {1: 1.0, 2: 2.5, 3: 3.0, 4: 4.0})
    expected = fares(clone)
    lakebed.drop(source.uri)
    assert fares(clone) == expected


def test_cleaning_of_the_source_honours_a_clone(tmp_path: Path) -> None:
    keep = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    source = created(tmp_path)
    clone = source.clone(str(tmp_path / "clone"))
    for n in range(6):
        source.upsert(
            {"id": [1, 2, 3, 4], "city": FIRST["city"], "fare": [n + 0.5] * 4, "ts": [2 + n] * 4}, options=keep
        )
    source.maintenance.clean(options=keep)
    source.maintenance.archive(options=keep)
    assert fares(clone) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
    assert fares(source) == dict.fromkeys((1, 2, 3, 4), 5.5)


def test_clones_of_one_commit_share_its_savepoint(tmp_path: Path) -> None:
    source = created(tmp_path)
    saved = source.savepoints.create(name="before")
    one, two = (source.clone(str(tmp_path / name)) for name in ("one", "two"))
    assert [(s.instant, s.name) for s in source.savepoints] == [(saved.instant, "before")]
    one.delete([1])
    assert (fares(one).keys(), fares(two).keys()) == ({2, 3, 4}, {1, 2, 3, 4})


def _with_logs(t: lakebed.Table) -> None:
    t.upsert({"id": [1], "city": ["Oslo"], "fare": [9.0], "ts": [9]})


def _with_a_column(t: lakebed.Table) -> None:
    row = {"id": [9], "city": ["Bonn"], "fare": [9.0], "ts": [9], "note": ["x"]}
    t.upsert(row, options={"lakebed.write.evolution": "widen"})


REFUSED: dict[str, tuple[dict[str, Any], Any, str]] = {
    "log files": ({"type": "mor", **BUCKETS}, _with_logs, "have rows in log files.*compact"),
    "a record index": ({"index": "record"}, None, "index 'record'"),
    "consistent buckets": (
        {"type": "mor", "index": "consistent", "buckets": 2},
        lambda t: t.maintenance.compact(),
        "index 'consistent'",
    ),
    "files of other columns": ({}, _with_a_column, "differ in columns or types"),
    "renamed columns": ({}, lambda t: t.columns.rename("fare", "price"), "schema history"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_needs_a_copy_is_refused_and_leaves_nothing(reason: str, tmp_path: Path) -> None:
    settings, change, message = REFUSED[reason]
    source = created(tmp_path, **settings)
    if change is not None:
        change(source)
    with pytest.raises(UnsupportedFeature, match=f"(?s){message}.*deep=True"):
        source.clone(str(tmp_path / "clone"))
    assert lakebed.list_tables(str(tmp_path)) == [source.uri]
    assert len(source.savepoints) == 0
    copy = source.clone(str(tmp_path / "clone"), deep=True)
    assert copy.scan().to_arrow().sort_by("id").to_pylist() == source.scan().to_arrow().sort_by("id").to_pylist()


def test_a_clone_of_a_clone_is_a_copy(tmp_path: Path) -> None:
    source = created(tmp_path)
    clone = source.clone(str(tmp_path / "clone"))
    with pytest.raises(UnsupportedFeature, match="yet another table"):
        clone.clone(str(tmp_path / "again"))
    of_both(clone, clone.clone(str(tmp_path / "again"), deep=True), {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0})


@pytest.mark.parametrize("deep", [False, True])
def test_a_place_that_is_taken_is_left_as_it_is(deep: bool, tmp_path: Path) -> None:
    source = created(tmp_path)
    other = lakebed.load(str(tmp_path / "other"), FIRST, key="id")
    with pytest.raises(TableExists):
        source.clone(other.uri, deep=deep)
    with pytest.raises(InvalidOption, match="folders of their own"):
        source.clone(f"{source.uri}/below", deep=deep)
    assert (fares(other), len(source.savepoints)) == ({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}, 0)


@pytest.mark.parametrize("deep", [False, True])
def test_an_empty_table_has_an_empty_clone(deep: bool, tmp_path: Path) -> None:
    source = created(tmp_path)
    source.delete(where="id > 0")
    clone = source.clone(tmp_path / "clone", deep=deep)
    assert (clone.count(), clone.schema.names) == (0, [*FIRST])
    clone.upsert(FIRST)
    assert (clone.count(), source.count()) == (4, 0)


def test_settings_of_the_source_as_a_place_are_not_those_of_its_clone(tmp_path: Path) -> None:
    source = created(tmp_path, properties={"hoodie.clean.commits.retained": 7})
    source.configure({"lakebed.publish": "delta"})
    clone = source.clone(str(tmp_path / "clone"))
    assert clone.properties["lakebed.clean.commits.retained"] == "7"
    assert "lakebed.publish" not in clone.properties
    assert clone.properties["lakebed.table.id"] != source.properties["lakebed.table.id"]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("on_failure", ["reject", "quarantine", "warn"])
def test_a_clone_has_the_stored_rows_that_break_a_check(on_failure: Any, deep: bool, tmp_path: Path) -> None:
    source = created(tmp_path)
    source.checks.add("cheap", "fare < 3", on_failure=on_failure, validate=False)
    clone = source.clone(tmp_path / "clone", deep=deep)
    assert fares(clone) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
    assert [str(check) for check in clone.checks] == [f"cheap: fare < 3 ({on_failure})"]
    assert clone.loaded is not None
    assert clone.loaded.quarantined == 0
    row = {"id": [9], "city": ["Oslo"], "fare": [9.0], "ts": [9]}
    if on_failure == "reject":
        with pytest.raises(CheckFailed):
            clone.upsert(row)
    else:
        assert clone.upsert(row).quarantined == (on_failure == "quarantine")


def test_a_deep_clone_needs_not_hold_what_writes_have_to(tmp_path: Path) -> None:
    source = created(tmp_path)
    source.checks.add("small", "count(*) < 2", on="table", validate=False)
    source.configure(
        {
            "hoodie.precommit.validators": "SqlQueryEqualityPreCommitValidator",
            "hoodie.precommit.validators.equality.sql.queries": "select count(*) from <TABLE_NAME>",
        }
    )
    clone = source.clone(tmp_path / "clone", deep=True)
    assert fares(clone) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
    with pytest.raises(ValidationFailed):
        clone.upsert({"id": [9], "city": ["Oslo"], "fare": [9.0], "ts": [9]})


def test_a_second_clone_of_a_commit_says_which_savepoint_keeps_its_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = created(tmp_path)
    first = source.clone(tmp_path / "first")
    assert caplog.records == []
    source.clone(tmp_path / "second")
    (message,) = (record.getMessage() for record in caplog.records)
    assert "second are kept by savepoint" in message
    assert f"clone file://{first.uri}, which was there before" in message
    assert len(source.savepoints) == 1
    with pytest.raises(
        InvalidOption, match=r"has a savepoint named 'clone file:.*A clone may read the files"
    ) as caught:
        source.undo()
    assert "Delete the savepoint first" in caught.value.hint


def test_a_table_with_vectors_is_cloned_by_a_copy_alone() -> None:
    schema = pa.schema([("id", pa.string()), ("emb", lakebed.vector(2))])
    table = lakebed.create("memory://clones/vectors", schema, key="id")
    table.upsert([{"id": "a", "emb": [1.0, 2.0]}, {"id": "b", "emb": None}])
    with pytest.raises(UnsupportedFeature, match=r"of vectors such as emb the bytes alone .* Take deep=True"):
        table.clone("memory://clones/vectors-shallow")
    clone = table.clone("memory://clones/vectors-deep", deep=True)
    assert clone.to_arrow().sort_by("id").to_pylist() == table.to_arrow().sort_by("id").to_pylist()
    assert clone.search([1, 2], 1, metric="l2").to_arrow()["id"].to_pylist() == ["a"]
