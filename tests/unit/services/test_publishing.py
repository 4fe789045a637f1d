"""Publication as lists of other formats: what is in them, what is refused, and what happens after commits."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any, Literal

import fastavro
import pyarrow as pa
import pytest

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.format.bounded_cache import BoundedCache
from lakebed.publish import data_files, delta, foreign, iceberg
from lakebed.publish.publication import publish
from lakebed.services import publishing
from lakebed.testing import crash_at
from support.published import READERS, check_published, expected_rows, quiet, sorted_rows
from support.storage_requests import before_requests

Form = Literal["delta", "iceberg"]
FORMS: tuple[Form, ...] = ("delta", "iceberg")
quiet_readers = pytest.fixture(autouse=True)(quiet)
ROWS = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", None], "v": [10, 20, 30]})


def new_table(folder: Path, rows: Any = ROWS, **words: Any) -> lakebed.Table:
    table = lakebed.create(str(folder / "t"), rows, **{"key": "id", "partition_by": "city", **words})
    table.upsert(rows)
    return table


def actions(table: lakebed.Table, version: int, kind: str) -> list[dict[str, Any]]:
    text = Path(table.uri, "_delta_log", f"{version:020}.json").read_text()
    return [action[kind] for action in map(json.loads, text.splitlines()) if kind in action]


def test_each_commit_has_a_version_that_other_readers_travel_to(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    expected = [expected_rows(table)]
    for rows in ({"id": [1], "city": ["Oslo"], "v": [11]}, {"id": [4], "city": ["Oslo"], "v": [40]}):
        table.upsert(rows)
        expected.append(expected_rows(table))
    for form, name in (("delta", "deltalake"), ("iceberg", "pyiceberg")):
        result = table.catalogs.publish(form)
        assert [one.operation for one in result.published] == ["UPSERT"] * 3
        assert [one.instant for one in result.published] == [instant.time for instant in table.timeline]
        read = READERS[form][name]
        assert [sorted_rows(read(table.uri, one.version)) for one in result.published] == expected
        assert table.catalogs.publish(form).published == ()


def test_a_delta_log_has_the_values_of_the_rows_in_its_statistics(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "name": ["b", None], "at": pa.array([1_001, 2_001], pa.timestamp("us", "UTC"))})
    table = new_table(tmp_path, rows, partition_by=None)
    table.catalogs.publish("delta")
    (add,) = actions(table, 0, "add")
    assert add["size"] == Path(table.uri, add["path"]).stat().st_size
    assert json.loads(add["stats"]) == {
        "numRecords": 2,
        "minValues": {"id": 1, "name": "b", "at": "1970-01-01T00:00:00.001Z"},
        "maxValues": {"id": 2, "name": "b", "at": "1970-01-01T00:00:00.003Z"},
        "nullCount": {"id": 0, "name": 1, "at": 0},
    }
    (info,) = actions(table, 0, "commitInfo")
    assert json.loads(info["userMetadata"])["hudi.instant"] == table.timeline.last.time
    (protocol,) = actions(table, 0, "protocol")
    assert protocol == {"minReaderVersion": 1, "minWriterVersion": 2}


@pytest.mark.parametrize(("longest", "ranges"), [(2, {}), (3, {"id": "abc"})])
def test_long_texts_have_no_range(longest: int, ranges: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "MAX_TEXT", longest)
    table = new_table(tmp_path, pa.table({"id": ["abc"]}), partition_by=None)
    table.catalogs.publish("delta")
    (add,) = actions(table, 0, "add")
    assert json.loads(add["stats"])["minValues"] == ranges


@pytest.mark.parametrize("form", FORMS)
def test_small_bounds_give_the_same_rows(form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 1)
    monkeypatch.setattr(delta, "MAX_DIGITS", 0)
    for name in ("MANIFEST_FILES", "TIDY_EVERY", "RETAINED_VERSIONS"):
        monkeypatch.setattr(iceberg, name, 1)
    monkeypatch.setattr(iceberg, "MAX_SMALL_MANIFESTS", 0)
    monkeypatch.setattr(iceberg, "_ORPHAN_SECONDS", -60)
    table = new_table(tmp_path)
    for n in range(4):
        table.upsert({"id": [n], "city": ["Oslo"], "v": [n]})
        table.catalogs.publish(form)
        monkeypatch.setattr(foreign, "_NEWEST", BoundedCache[Any](0))
    check_published(table, form)


@pytest.mark.parametrize("form", FORMS)
def test_a_list_with_a_version_of_another_writer_is_refused_by_name(form: Form, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish(form)
    if form == "delta":
        import deltalake

        deltalake.write_deltalake(table.uri, ROWS, mode="append")
        where = "_delta_log/00000000000000000001.json was not written by lakebed: version 1 is of delta-rs"
    else:
        text = Path(table.uri, "metadata", "v1.metadata.json").read_text()
        Path(table.uri, "metadata", "v2.metadata.json").write_text(text)
        where = "metadata/v2.metadata.json was not written by lakebed"
    with pytest.raises(lakebed.UnsupportedFeature, match=where):
        table.catalogs.publish(form)


def test_every_iceberg_manifest_has_the_id_and_the_columns_of_one_schema_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "MANIFEST_FILES", 1)
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg")
    table.upsert({"id": [1, 9], "city": ["Oslo", "Lima"], "v": [5, 6], "extra": ["a", "b"]})
    table.catalogs.publish("iceberg")
    table.columns.drop("v")
    table.upsert({"id": [9], "city": ["Lima"], "extra": ["c"]})
    table.catalogs.publish("iceberg")
    found: set[int] = set()
    folder = Path(table.uri, "metadata")
    metadata = json.loads(max(folder.glob("v*.metadata.json")).read_text())
    schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
    assert [[field["name"] for field in schemas[n]["fields"]] for n in (0, 1, 2)] == [
        ["id", "city", "v"], ["id", "city", "v", "extra"], ["id", "city", "extra"],
    ]  # fmt: skip
    for manifest in folder.glob("*-m0.avro"):
        with manifest.open("rb") as file:
            schema = json.loads(fastavro.reader(file).metadata["schema"])
        assert schema == schemas[schema["schema-id"]], manifest
        found.add(schema["schema-id"])
    assert found == {0, 1, 2}


@pytest.mark.parametrize("form", FORMS)
def test_columns_that_readers_by_name_would_read_wrong_are_refused_until_files_are_rewritten(
    form: Form, tmp_path: Path
) -> None:
    table = new_table(tmp_path, ROWS.set_column(2, "v", ROWS["v"].cast(pa.int32())), index="simple")
    table.catalogs.publish(form)
    table.columns.rename("v", "value")
    with pytest.raises(lakebed.UnsupportedFeature, match="column value is column v in"):
        table.catalogs.publish(form)
    table.upsert({"id": [1, 2, 3], "city": ["Oslo", "Rome", None], "value": [1, 2, 3]})
    result = table.catalogs.publish(form)
    assert len(result.skipped) == 1
    assert "column value is column v in" in result.skipped[0]
    check_published(table, form)
    table.columns.widen("value", "long")
    with pytest.raises(lakebed.UnsupportedFeature, match="column value has type int64, and int32 in"):
        table.catalogs.publish(form)


@pytest.mark.parametrize("form", FORMS)
def test_partition_columns_that_paths_change_are_published_as_plain_columns(form: Form, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "at": [1_700_000_000, 1_800_000_000]})
    settings = {
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    }
    table = lakebed.write(
        rows,
        str(tmp_path / "t"),
        {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "at",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
            **settings,
        },
    )
    opened = lakebed.open(str(tmp_path / "t"))
    assert table is not None
    opened.catalogs.publish(form)
    check_published(opened, form)


def test_the_empty_text_as_a_partition_value_is_refused_in_a_delta_log(tmp_path: Path) -> None:
    table = new_table(tmp_path, pa.table({"id": [1], "city": [""]}))
    with pytest.raises(lakebed.UnsupportedFeature, match="the empty text in partition column city"):
        table.catalogs.publish("delta")
    table.catalogs.publish("iceberg")
    check_published(table, "iceberg")


@pytest.mark.parametrize("form", FORMS)
def test_log_files_are_shown_after_a_compaction_and_named_before_it(form: Form, tmp_path: Path) -> None:
    table = new_table(tmp_path, type="mor", index="simple")
    table.catalogs.publish(form)
    first = table.timeline.last.time
    table.upsert({"id": [1], "city": ["Oslo"], "v": [99]})
    result = table.catalogs.publish(form)
    assert [(group.partition, group.instant, group.log_files) for group in result.unmerged] == [("Oslo", first, 1)]
    check_published(table, form)
    table.maintenance.compact()
    assert table.catalogs.publish(form).unmerged == ()
    assert sorted_rows(READERS[form]["polars"](table.uri, None)) == sorted_rows(table.scan().to_arrow())


def test_the_setting_publishes_after_writes_services_and_restores(tmp_path: Path) -> None:
    table = new_table(tmp_path, properties={"lakebed.publish": "delta,iceberg"}, index="simple")
    for change in (
        lambda: table.upsert({"id": [1], "city": ["Oslo"], "v": [1]}),
        lambda: table.columns.add("note", "string"),
        lambda: table.rollback(table.timeline.last.time),
        lambda: table.delete(where="v = 20"),
    ):
        change()
        for form in FORMS:
            check_published(table, form)
            assert table.consumers.get(f"published-{form}").lag_commits == 0
    with pytest.raises(lakebed.InvalidOption, match="formats separated by commas"):
        table.configure({"lakebed.publish": "delta,parquet"})


def test_a_failed_publication_fails_no_commit_and_the_next_one_catches_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path, properties={"lakebed.publish": "delta"})
    with (
        caplog.at_level(logging.WARNING, "lakebed"),
        crash_at(lambda mutation: mutation.path.startswith("_delta_log"), "fail"),
    ):
        lakebed.open(table.uri).upsert({"id": [1], "city": ["Oslo"], "v": [1]})
    (record,) = [r for r in caplog.records if "publication" in r.getMessage()]
    assert f"`lakebed catalogs publish {table.uri} delta`" in record.getMessage()
    table.upsert({"id": [2], "city": ["Rome"], "v": [2]})
    check_published(table, "delta")
    assert len(list(Path(table.uri, "_delta_log").glob("*.json"))) == 3


@pytest.mark.rest
@pytest.mark.parametrize("form", FORMS)
def test_cleaning_retains_the_files_of_a_list_that_is_older_than_the_table(form: Form, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish(form)
    published = expected_rows(table)
    for n in range(5):
        table.upsert({"id": [1], "city": ["Oslo"], "v": [n]})
    kept = {"hoodie.clean.commits.retained": 1}
    assert "published-" in str(table.maintenance.clean(options=kept))
    assert sorted_rows(READERS[form]["polars"](table.uri, None)) == published
    table.maintenance.clean(options={**kept, "lakebed.consumers.max_lag": 0})
    result = table.catalogs.publish(form)
    assert result.instant == table.timeline.last.time
    check_published(table, form)


def test_snapshots_of_cleaned_commits_are_taken_off_an_iceberg_list(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for n in range(4):
        table.upsert({"id": [1], "city": ["Oslo"], "v": [n]})
        table.catalogs.publish("iceberg")
    table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    table.upsert({"id": [1], "city": ["Oslo"], "v": [9]})
    result = table.catalogs.publish("iceberg")
    metadata = json.loads(Path(table.uri, "metadata", "v6.metadata.json").read_text())
    retained = [str(one["snapshot-id"]) for one in metadata["snapshots"]]
    assert (
        retained == [instant.time for instant in table.timeline if instant.action.value == "commit"][-len(retained) :]
    )
    assert len(retained) < 6
    for snapshot in retained:
        READERS["iceberg"]["pyiceberg"](table.uri, int(snapshot))
    assert result.version == int(retained[-1])


def test_old_versions_of_a_delta_log_that_a_checkpoint_has_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    table = new_table(tmp_path)
    log = Path(table.uri, "_delta_log")

    def publish_until(version: int) -> None:
        while table.catalogs.publish("delta").version < version:
            table.upsert({"id": [1], "city": ["Oslo"], "v": [1]})

    publish_until(8)
    old, young = (time.time() - (delta.RETAINED_DAYS + side) * 86_400 for side in (0.1, -0.1))
    for file in log.iterdir():
        number = int(file.name[:20]) if file.name[0].isdigit() else 8
        os.utime(file, (old, old) if number <= 5 else (young, young))
    publish_until(9)
    numbers = sorted(int(file.name[:20]) for file in log.glob("*.json"))
    assert numbers == [3, 4, 5, 6, 7, 8, 9]  # 3 has the last checkpoint of that age
    assert sorted(int(file.name[:20]) for file in log.glob("*.parquet")) == [3, 6, 9]
    check_published(table, "delta")
    foreign._NEWEST.clear()
    publish_until(11)
    check_published(table, "delta")


@pytest.mark.parametrize("form", FORMS)
def test_a_publisher_that_reads_versions_while_another_one_deletes_them_goes_on(form: Form, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for n in range(3):
        table.upsert({"id": [1], "city": ["Oslo"], "v": [n]})
        table.catalogs.publish(form)
    other, reads = table.opened.storage, list[str]()

    def publish_by_the_other(verb: str, path: str) -> None:
        if verb == "read" and path.startswith(publishing.list_formats()[form].folder) and not reads:
            reads.append(path)
            publishing.publish_alone(other, form, WriteSettings())

    foreign._NEWEST.clear()
    table.upsert({"id": [1], "city": ["Oslo"], "v": [9]})
    with before_requests(publish_by_the_other):
        result = lakebed.open(table.uri).catalogs.publish(form)
    assert (len(reads), result.instant) == (1, table.timeline.last.time)
    check_published(table, form)


@pytest.mark.parametrize("form", FORMS)
def test_a_publisher_that_comes_second_finds_the_version_written(form: Form, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish(form)
    table.upsert({"id": [1], "city": ["Oslo"], "v": [1]})
    other = lakebed.open(table.uri)
    first = publishing.list_formats()[form]

    class Overtaken:
        """A format whose first version of a publication is written by another publisher."""

        overtaken = False

        def __getattr__(self, name: str) -> Any:
            return getattr(first, name)

        def append(self, *given: Any) -> Any:
            if not self.overtaken:
                self.overtaken = True
                publishing.publish_table(other.opened.storage, form, WriteSettings())
            return first.append(*given)

    slow = Overtaken()
    result, _ = publish(table.opened.storage, table.opened.snapshot, slow)  # pyright: ignore[reportArgumentType]
    # both publishers write the same bytes into a Delta log, so neither can tell who was first
    assert len(result.published) == (1 if form == "delta" else 0)
    assert (slow.newest(table.opened.storage).version, result.instant) == (result.version, table.timeline.last.time)
    check_published(table, form)


def test_an_unknown_format_is_refused_with_the_names_of_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(lakebed.InvalidOption, match="there is no format 'paimon' to publish a table as"):
        new_table(tmp_path).catalogs.publish("paimon")  # pyright: ignore[reportArgumentType]
