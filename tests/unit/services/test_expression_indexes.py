"""Expression indexes: made, listed, kept by every action, checked, repaired, dropped, and what is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.metadata.lookups import open_snapshot, snapshot_of
from lakebed.metadata_kinds.expression_results import (
    ExpressionIndex,
    filter_records_of,
    results_of_files,
    stats_of_results,
    zone_notes,
)
from lakebed.metadata_records.records import Records, record_form
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.properties.file import load_table_config, update_table_config
from lakebed.slices.listing import list_table
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.table import Table
from lakebed.timeline.timeline import load_timeline
from support.locks import held
from support.tables_in_memory import in_memory

SCHEMA = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)
DAY, LOWER = "expr_index_day", "expr_index_lower"
Make = Callable[..., Table]
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


def batch(ids: range, *, later: int = 0) -> pa.Table:
    """Rows in three cities; every fifth has no name, every seventh no time."""
    return pa.Table.from_pylist(
        [
            {
                "id": n,
                "city": f"c{n % 3}",
                "name": None if n % 5 == 0 else f"Name {n + later}",
                "at": None if n % 7 == 0 else EPOCH + timedelta(days=n + later),
            }
            for n in ids
        ],
        SCHEMA,
    )


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Any) -> Make:
    def create(**given: Any) -> Table:
        words: dict[str, Any] = {"key": "id", "partition_by": "city", "merge": "commit_time"} | given
        return lakebed.create(str(tmp_path / "t"), SCHEMA, **words)

    return create


def indexed(table: Table) -> Table:
    table.indexes.create("day", column="at", function="date_format", function_options={"format": "yyyy-MM-dd"})
    table.indexes.create(
        LOWER, column="name", function="lower", function_options={"numentries": 20}, kind="bloom_filters"
    )  # fmt: skip
    return table


def ranges(table: Table) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the live files and of the partition paths: smallest, greatest, nulls, values."""
    snapshot = open_snapshot(open_storage(table.uri))
    assert snapshot.metadata is not None
    live = {b.name for b in snapshot.base_files()}
    found = [
        {
            row["file_name"]: (row["min"], row["max"], row["null_count"], row["value_count"])
            for row in stats["at"].to_pylist()
        }
        for stats in snapshot.metadata.expression_stats(DAY)
    ]
    return {name: said for name, said in found[0].items() if name in live}, found[1]


def ranges_of_rows(table: Table) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same from the rows."""
    of_files: dict[str, Any] = {}
    of_paths: dict[str, Any] = {}
    found: dict[tuple[str, str], list[str | None]] = {}
    for row in table.scan(columns=["_hoodie_file_name", "city", "at"]).to_arrow().to_pylist():
        text = row["at"] and f"{row['at']:%Y-%m-%d}"
        found.setdefault(("file", row["_hoodie_file_name"]), []).append(text)
        found.setdefault(("path", row["city"]), []).append(text)
    for (kind, name), texts in found.items():
        days = [t for t in texts if t is not None]
        said = (min(days, default=None), max(days, default=None), len(texts) - len(days), len(days))
        (of_files if kind == "file" else of_paths)[name] = said
    return of_files, of_paths


def united(of_files: dict[str, Any]) -> Any:
    """The range and the counts of all files together."""
    lows = [low for low, _, _, _ in of_files.values() if low is not None]
    highs = [high for _, high, _, _ in of_files.values() if high is not None]
    counts = [sum(said[at] for said in of_files.values()) for at in (2, 3)]
    return (min(lows, default=None), max(highs, default=None), *counts)


ACTIONS: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda t: t.upsert(batch(range(10, 20), later=300)),
    "insert": lambda t: t.insert(batch(range(100, 110))),
    "bulk_insert": lambda t: t.bulk_insert(batch(range(200, 220))),
    "delete": lambda t: t.delete(list(range(5))),
    "insert_overwrite": lambda t: t.insert_overwrite(batch(range(300, 301))),
    "delete_partitions": lambda t: t.delete_partitions(["c1"]),
}


@pytest.mark.parametrize(
    ("action", "partitioned"), [*((a, True) for a in ACTIONS), *((a, False) for a in ACTIONS if "partitions" not in a)]
)
def test_every_action_keeps_expression_indexes_right(make: Make, action: str, partitioned: bool) -> None:
    table = make(partition_by="city" if partitioned else None)
    table.upsert(batch(range(40)))
    indexed(table)
    ACTIONS[action](table)
    files, paths = ranges(table)
    expected_files, expected_paths = ranges_of_rows(table)
    assert files == expected_files
    assert paths == (expected_paths if partitioned else {"": united(expected_files)})
    found = table.indexes.verify()
    assert found.ok, found
    assert {DAY, LOWER} <= set(found.checked)
    assert not found.left_out


def test_an_expression_index_is_stored_as_hudi_does_and_listed(make: Make) -> None:
    table = make()
    table.upsert(batch(range(9)))
    indexed(table)
    stored = json.loads(open_storage(table.uri).read(".hoodie/.index_defs/index.json"))["indexDefinitions"]
    assert stored[DAY] == {
        "indexName": DAY,
        "indexType": "column_stats",
        "indexFunction": "date_format",
        "sourceFields": ["at"],
        "indexOptions": {"expr": "date_format", "format": "yyyy-MM-dd"},
        "version": "V2",
    }
    assert stored[LOWER]["indexOptions"] == {"expr": "lower", "numentries": "20"}
    listed = {f.name: (f.kind, f.fields, f.file_groups) for f in table.indexes.list()}
    assert listed[DAY] == ("expression index: date_format", ("at",), 2)
    assert listed[LOWER] == ("expression index: lower, bloom filters", ("name",), 2)
    config = load_table_config(open_storage(table.uri))
    assert {DAY, LOWER} <= set(config.metadata_partitions)
    assert {name: note.zone for name, note in zone_notes(config.properties).items()} == {DAY: "UTC"}
    table.indexes.drop("day")
    table.indexes.drop(LOWER)
    config = load_table_config(open_storage(table.uri))
    assert not {DAY, LOWER} & set(config.metadata_partitions)
    assert zone_notes(config.properties) == {}
    table.upsert(batch(range(9), later=1))
    assert table.indexes.verify().ok


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ({"column": "name", "function": "soundex"}, UnsupportedFeature, "date_format"),
        ({"column": "nothing", "function": "lower"}, UnsupportedFeature, "nothing"),
        ({"column": "name", "function": "year"}, UnsupportedFeature, "string"),
        ({"column": "name"}, InvalidOption, "column_stats"),
        ({"column": "name", "function": "lower", "kind": "bitmap"}, InvalidOption, "bloom_filters"),
        ({"column": "at", "function": "to_date", "kind": "bloom_filters"}, UnsupportedFeature, "date32"),
        ({"column": "name", "function": "lower", "options": {"fpp": "0.1"}}, InvalidOption, "fpp"),
        ({"column": "name", "function": "lower", "options": {"fpp": 2}, "kind": "bloom_filters"}, InvalidOption, "fpp"),
        ({"function": "lower"}, InvalidOption, "column"),
    ],
)
def test_expression_indexes_that_cannot_be_made_are_refused(
    make: Make, words: dict[str, Any], error: Any, said: str
) -> None:
    table = make()
    table.upsert(batch(range(9)))
    before = load_table_config(open_storage(table.uri)).properties
    with pytest.raises(error) as refusal:
        table.indexes.create("x", **words)
    assert said in str(refusal.value)
    assert load_table_config(open_storage(table.uri)).properties == before


@pytest.mark.parametrize("version", [6, 8])
def test_table_versions_before_9_refuse_expression_indexes(make: Make, version: int) -> None:
    table = make(table_version=version)
    table.upsert(batch(range(9)))
    with pytest.raises(UnsupportedFeature, match=f"version {version}"):
        table.indexes.create("x", column="name", function="lower")


def test_a_name_twice_and_odd_names(make: Make) -> None:
    table = make()
    table.upsert(batch(range(9)))
    indexed(table)
    for name, words in (("day", "already"), ("a b", "no name")):
        with pytest.raises(InvalidOption, match=words):
            table.indexes.create(name, column="name", function="upper")


def test_files_whose_results_are_not_known_have_no_record(make: Make) -> None:
    """Of `ß` Java makes two letters: such a file is always read."""
    table = make()
    table.upsert(batch(range(9)))
    table.indexes.create("up", column="name", function="upper")
    table.upsert(pa.Table.from_pylist([{"id": 1, "city": "c1", "name": "straße", "at": None}], SCHEMA))
    snapshot = open_snapshot(open_storage(table.uri))
    assert snapshot.metadata is not None
    files, paths = snapshot.metadata.expression_stats("expr_index_up")
    live = {b.name for b in snapshot.base_files() if b.partition == "c1"}
    assert not live & set(files["name"]["file_name"].to_pylist())
    assert sorted(paths["name"]["file_name"].to_pylist()) == ["c0", "c2"]
    assert table.indexes.verify().ok
    assert table.scan(where="upper(name) = 'STRASSE'").to_arrow()["id"].to_pylist() == [1]


def test_differences_are_named_and_repaired(make: Make) -> None:
    table = indexed_with_rows(make)
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    metadata = open_snapshot(storage).metadata
    assert metadata is not None
    bases = [(b.partition, b.name) for b in open_snapshot(storage).base_files()]
    files, paths = metadata.expression_stats(DAY)
    gone = pa.concat_arrays([files["at"]["key"].combine_chunks(), paths["at"]["key"].combine_chunks()])
    instant = str(int(timeline.commits[-1].time) + 1)
    wrong = {DAY: Records.deletes(gone), LOWER: Records.deletes(keys_of_filters(table))}
    apply_delta(MetadataStore(storage, config, timeline, lock_is_held=held), instant, wrong)
    found = table.indexes.verify()
    assert found.of(DAY)["problem"].to_pylist() == ["missing"] * (2 * len(bases))
    assert found.of(LOWER)["problem"].to_pylist() == ["missing"] * len(bases)
    table.indexes.repair("expr_index_day")
    assert not table.indexes.verify().of(DAY).num_rows
    table.indexes.repair()
    assert table.indexes.verify().ok
    assert ranges(table) == ranges_of_rows(table)


def indexed_with_rows(make: Make) -> Table:
    table = make()
    table.upsert(batch(range(9)))
    return indexed(table)


def keys_of_filters(table: Table) -> pa.Array:
    snapshot = open_snapshot(open_storage(table.uri))
    assert snapshot.metadata is not None
    (index,) = [d for n, d in snapshot.metadata.slices.definitions.items() if n == LOWER]
    files = [(b.partition, b.name, b.size) for b in snapshot.base_files()]
    built = ExpressionIndex.of(index, snapshot.schema)
    results = [one[LOWER] for one in results_of_files(snapshot, files, [built])]
    return filter_records_of(results, "0" * 17, record_form(9)).keys


def test_an_expression_index_that_cannot_be_updated_is_dropped(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    table = indexed_with_rows(make)
    storage = open_storage(table.uri)
    path = ".hoodie/.index_defs/index.json"
    storage.write(path, storage.read(path).replace(b'"date_format"', b'"soundex"'))
    config = load_table_config(storage)
    options = {"lakebed.metadata.on_unknown": "refuse"}
    with pytest.raises(UnsupportedFeature, match=DAY):
        lakebed.open(table.uri).upsert(batch(range(3), later=1), options=options)
    assert load_table_config(storage) == config
    with caplog.at_level(logging.WARNING, "lakebed"):
        lakebed.open(table.uri).upsert(batch(range(3), later=1))
    assert "soundex" in caplog.text
    config = load_table_config(storage)
    assert DAY not in config.metadata_partitions
    assert LOWER in config.metadata_partitions
    assert table.indexes.verify().ok


@pytest.mark.parametrize("name", ["v9_cow_mdt_all", "v9_cow_mdt_expression"])
def test_golden_indexes_are_computed_value_for_value(name: str) -> None:
    storage: Storage = in_memory(name, "expressions")
    config = load_table_config(storage)
    snapshot = snapshot_of(storage, config, load_timeline(storage, config))
    metadata = snapshot.metadata
    assert metadata is not None
    bases = [(b.partition, b.name, b.size) for b in list_table(storage).base_files]
    seen = 0
    for partition, definition in metadata.slices.definitions.items():
        if not partition.startswith("expr_index_"):
            continue
        if definition.type == "bloom_filters":  # the job that wrote it said so
            definition = replace(definition, options={**definition.options, "numentries": "2000"})
        index = ExpressionIndex.of(definition, snapshot.schema)
        results = [one[partition] for one in results_of_files(snapshot, bases, [index])]
        if index.has_filters:
            theirs = metadata.expression_bloom_filters(partition, [(r.partition, r.name) for r in results])
            found = {row["file_name"]: row["bloom"].decode() for row in theirs.to_pylist()}
            assert found == {r.name: r.bloom.to_text() for r in results if r.bloom is not None}
        else:
            theirs = metadata.expression_stats(partition)[0][index.column]
            ours = stats_of_results(index, results)
            by_key = [("key", "ascending")]
            assert ours.sort_by(by_key).to_pylist() == theirs.sort_by(by_key).to_pylist()
        seen += 1
    assert seen == 2


def test_golden_indexes_are_written_on() -> None:
    storage = in_memory("v9_cow_mdt_expression", "expressions-on")
    table = lakebed.open(storage.url())
    table.indexes.verify()
    rows = table.scan().to_arrow()
    table.upsert(rows.slice(0, 5))
    found = lakebed.open(storage.url()).indexes.verify()
    assert found.ok, found
    assert {"expr_index_idx_sub", "expr_index_idx_year"} <= set(found.checked)


def test_a_note_of_a_zone_ends_with_its_index(make: Make) -> None:
    """Made anew by another writer, the index may have the results of another zone."""
    table = indexed_with_rows(make)
    some = "date_format(at, 'yyyy-MM-dd') = '2020-01-02'"
    assert len(table.scan(where=some).files) == 1
    storage = open_storage(table.uri)
    properties = load_table_config(storage).properties
    noted = properties["lakebed.metadata.expression.zones"]
    update_table_config(storage, {"lakebed.metadata.expression.zones": noted.replace(" 000000", " 000001")}, held)
    assert len(lakebed.open(table.uri).scan(where=some).files) == 3
