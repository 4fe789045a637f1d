"""Lookups through the record index: the answers of a search through all files, from the files it names alone."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.format.footer_cache import FOOTERS
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import HOODIE
from lakebed.read import keys as keys_module
from lakebed.read.keys import IndexedKeys
from lakebed.read.lookup import KeyText, exists, get, locate
from lakebed.read.scan import Scan
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.snapshot import Snapshot
from lakebed.testing import CountingStorage
from support.golden_tables import golden
from support.tables_in_memory import WITH_INDEXES, in_memory

WITH_RECORD_INDEX = [n for n in WITH_INDEXES if "record_index" in golden(n).entry["metadata_partitions"]]
READABLE = [n for n in WITH_RECORD_INDEX if golden(n).type == "cow"]
NOBODY = "nobody has this key"


@cache
def storage_of(name: str) -> CountingStorage:
    return in_memory(name, "record-index")


def views(name: str) -> tuple[Snapshot, Snapshot]:
    """Of one table: with its metadata table, and without."""
    storage = storage_of(name)
    return open_snapshot(storage), open_snapshot(storage, use_metadata=False)


def data_files(storage: CountingStorage) -> set[str]:
    return {path for path in storage.opened if not path.startswith(HOODIE)}


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("name", READABLE)
def test_answers_are_those_of_a_search_through_the_files(name: str) -> None:
    indexed, searched = views(name)
    everything = Scan(searched, meta=True).to_arrow()
    keys = everything["_hoodie_record_key"].to_pylist()
    for some in (keys, keys[::7], [keys[0]], [NOBODY], [*keys[3:9], NOBODY]):
        asked = KeyText(some)
        columns = everything.column_names
        assert rows(get(indexed, asked, columns)) == rows(get(searched, asked, columns))
        assert exists(indexed, asked).equals(exists(searched, asked))
        assert rows(locate(indexed, asked)) == rows(locate(searched, asked))


@pytest.mark.parametrize("name", READABLE)
def test_a_partitioned_index_finds_a_key_in_its_partition_alone(name: str) -> None:
    indexed, searched = views(name)
    whole = Scan(searched, columns=["id", "region"]).to_arrow()
    partitions = sorted(set(whole["region"].to_pylist()))
    ids = whole["id"].to_pylist()
    asked = pa.table({"id": ids, "region": [partitions[i % len(partitions)] for i in range(len(ids))]})
    assert rows(get(indexed, asked)) == rows(get(searched, asked))
    assert exists(indexed, asked).equals(exists(searched, asked))
    assert rows(locate(indexed, asked)) == rows(locate(searched, asked))


@pytest.mark.parametrize("name", WITH_RECORD_INDEX)
def test_places_are_those_of_the_rows_that_hudi_read(name: str) -> None:
    """On merge-on-read tables too: no file is read for it."""
    storage = storage_of(name)
    snapshot = open_snapshot(storage)
    expected = golden(name).expected
    keys = expected["_hoodie_record_key"].to_pylist()
    assert not snapshot.repeats_keys  # where Hudi has inserted rows, those of slices with deletes are counted once
    storage.reset()
    found = locate(snapshot, KeyText([*keys, NOBODY]))
    assert not data_files(storage)
    names = [n.partition("_")[0] for n in expected["_hoodie_file_name"].to_pylist()]
    paths = expected["_hoodie_partition_path"].to_pylist()
    places = zip(*(found[c].to_pylist() for c in ("key", "partition_path", "file_id")), strict=True)
    assert sorted(places) == sorted(zip(keys, paths, names, strict=True))
    slices = {(s.partition, s.file_id): s for s in snapshot.file_slices()}
    for row in found.to_pylist():
        held = slices[row["partition_path"], row["file_id"]]
        assert row["instant"] == (held.base_file.instant if held.base_file else held.instant)
    assert exists(snapshot, KeyText([NOBODY, keys[0]])).to_pylist() == [False, True]


def test_one_key_opens_one_data_file() -> None:
    storage = in_memory("v9_cow_record_index", "record-index-counted")
    key = golden("v9_cow_record_index").expected["_hoodie_record_key"][5].as_py()
    snapshot = open_snapshot(storage)
    storage.reset()
    FOOTERS.clear()
    assert get(snapshot, KeyText([key])).num_rows == 1
    assert storage.counts["list"] == 3  # the metadata timeline, `files`, `record_index`
    opened = [path for path in storage.opened if not path.startswith(HOODIE)]
    assert len(set(opened)) == 1
    assert len(opened) == 2  # footer, then keys and the row group: it has one page
    storage.reset()
    assert get(snapshot, KeyText([key])).num_rows == 1
    assert len([path for path in storage.opened if not path.startswith(HOODIE)]) == 1
    storage.reset()
    assert get(snapshot, KeyText([NOBODY])).num_rows == 0
    assert not data_files(storage)


def test_an_older_view_is_searched_without_the_index() -> None:
    storage = in_memory("v9_cow_mdt_basic", "record-index-as-of")
    newest = open_snapshot(storage)
    for commit in newest.commits:
        view, listed = newest.at(commit.time), open_snapshot(storage, as_of=commit.time, use_metadata=False)
        whole = Scan(listed, meta=True).to_arrow()
        keys = KeyText(whole["_hoodie_record_key"])
        assert rows(get(view, keys)) == rows(Scan(listed).to_arrow())
        assert rows(locate(view, keys)) == rows(locate(listed, keys))


def test_an_index_that_was_just_taken_away_is_not_asked() -> None:
    """Another engine's writer removes the folder before or after the property."""
    storage = in_memory("v9_cow_record_index", "record-index-gone")
    snapshot = open_snapshot(storage)
    storage.delete_folder(f"{HOODIE}/metadata/record_index")
    keys = golden("v9_cow_record_index").expected["_hoodie_record_key"]
    assert exists(snapshot, KeyText(keys)).to_pylist() == [True] * len(keys)


def test_an_index_that_names_a_file_group_which_is_not_there_is_not_relied_on() -> None:
    storage = in_memory("v9_cow_record_index", "record-index-wrong")
    snapshot = open_snapshot(storage)
    lost = snapshot.file_slices()[0]
    held = [s for s in snapshot.file_slices() if s is not lost]
    keys = golden("v9_cow_record_index").expected
    elsewhere = keys.filter([not n.startswith(lost.file_id) for n in keys["_hoodie_file_name"].to_pylist()])
    listing = snapshot._listing(None)  # pyright: ignore[reportPrivateUsage]
    wanted = {s.file_id for s in held}
    snapshot._cache.listings[None] = listing.of_groups(groups_of_ids(wanted))  # pyright: ignore[reportPrivateUsage]
    found = get(snapshot, KeyText(elsewhere["_hoodie_record_key"]))
    assert found.num_rows == len(elsewhere)


def test_a_lookup_names_the_keys_of_each_file_group() -> None:
    places = pa.table(
        {
            "key": ["d", "b", "a", "c", "é", "B"],
            "partition": ["y", "x", "x", "y", "x", "x"],
            "file_id": ["f1", "f1", "f1", "f2", "f1", "f2"],
        }
    )
    groups = IndexedKeys(pa.concat_tables([places.slice(0, 2), places.slice(2)])).groups
    assert {group: keys.to_pylist() for group, keys in groups.items()} == {
        ("y", "f1"): ["d"],
        ("x", "f1"): ["a", "b", "é"],
        ("y", "f2"): ["c"],
        ("x", "f2"): ["B"],
    }
    assert IndexedKeys(places.slice(0, 0)).groups == {}


@pytest.mark.parametrize("column", ["id", "_hoodie_record_key"])
def test_a_filter_that_names_12_000_keys_asks_the_record_index(column: str) -> None:
    data = pa.table({"id": [f"k{n}" for n in range(16)], "day": [f"d{n}" for n in range(16)]})
    uri = f"memory://unit/record/many/{column}"
    table = lakebed.create(uri, data, key="id", partition_by="day", index="record")
    table.upsert(data)
    keys = pa.array([*(f"x{n}" for n in range(12_000)), "k7"])
    scan = table.scan(["id"], where=pc.field(column).isin(keys))
    assert scan.to_arrow()["id"].to_pylist() == ["k7"]
    assert "15 files by record index" in str(scan.explain()).replace("\n", " ")


@pytest.mark.parametrize(("keys", "asks"), [(20, True), (21, False)])
def test_more_keys_than_are_looked_up_leave_the_record_index(
    keys: int, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "MAX_KEYS", 20)
    data = pa.table({"id": [f"k{n}" for n in range(16)], "day": [f"d{n}" for n in range(16)]})
    table = lakebed.create(f"memory://unit/record/most/{keys}", data, key="id", partition_by="day", index="record")
    table.upsert(data)
    named = ["k7", *(f"x{n}" for n in range(keys - 1))]
    scan = table.scan(["id"], where=pc.field("id").isin(pa.array(named)))
    assert scan.to_arrow()["id"].to_pylist() == ["k7"]
    assert ("by record index" in str(scan.explain())) is asks
