"""`WriteResult.lookup` says of every index how many keys were looked up, and what was read to find them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from support.lookup_tables import CASES, FIRST, NAMES, NEXT, Counts, check, lookup_table


@pytest.mark.parametrize(("counts", "kind"), CASES, ids=NAMES)
def test_a_write_reports_its_key_lookups(uri: str, counts: Counts, kind: Any) -> None:
    t = lookup_table(uri, counts.index, kind)
    planned = t.explain(upsert=NEXT).lookup
    found = t.upsert(NEXT).lookup
    check(counts, found, knows_bytes=True)
    # the tasks that write look keys up in the files of their bucket
    assert planned == (None if counts.index == "bucket_groups" else found)


@pytest.mark.parametrize(("counts", "kind"), CASES, ids=NAMES)
def test_the_first_write_of_a_table_opens_nothing(uri: str, counts: Counts, kind: Any) -> None:
    empty = lakebed.create(uri, FIRST.schema, key="id", partition_by="region", type=kind, index=counts.index)
    found = empty.upsert(FIRST).lookup
    assert found is not None
    assert (found.keys, found.tagged, found.by_hash) == (20, 0, counts.by_hash)
    assert (found.files, found.searched, found.opened, found.bytes) == (0, 0, 0, 0)


@pytest.mark.parametrize("index", ["simple", "bloom", "record", "bucket", "bucket_groups"])
def test_keys_that_an_insert_leaves_out_are_counted(uri: str, index: str) -> None:
    t = lookup_table(uri, index, "cow")
    done = t.insert(NEXT, options={"hoodie.datasource.insert.dup.policy": "drop"})
    assert done.lookup is not None
    tagged = {"record": 3, "bucket": 0}.get(index, 2)
    assert (done.lookup.keys, done.lookup.tagged) == (4, tagged)
    assert done.inserted == (1 if index == "record" else 2)


def test_a_plain_insert_looks_nothing_up(uri: str) -> None:
    assert lookup_table(uri, "simple", "cow").insert(NEXT).lookup is None


@pytest.mark.parametrize("index", ["global_simple", "global_bloom"])
def test_files_that_rows_leave_are_counted_where_their_values_are_read(uri: str, index: str) -> None:
    t = lakebed.create(uri, FIRST.schema, key="id", partition_by="region", index=index, ordering="v")
    t.upsert(FIRST)
    found = t.upsert(NEXT).lookup
    assert found is not None
    # the simple index reads ordering values with the keys, the bloom index those of the file that b0 leaves
    assert (found.keys, found.tagged) == (4, 3)
    assert (found.opened, found.bytes is None) == ((2, False) if index == "global_simple" else (3, True))


@pytest.mark.parametrize("index", ["simple", "bloom"])
def test_log_files_are_opened_and_counted_completely(uri: str, index: str) -> None:
    t = lookup_table(uri, index, "mor")
    t.upsert(NEXT.slice(0, 2))
    logs = sum(log.size for one in t.files for log in one.log_files)
    assert logs > 0
    found = t.upsert(NEXT.slice(0, 2)).lookup
    assert found is not None
    # the bloom index opens the base file once more for the numbers of the rows
    assert (found.tagged, found.searched, found.opened) == (2, 1, 3 if index == "bloom" else 2)
    assert found.bytes is not None
    assert found.bytes > logs


def test_base_files_below_log_files_are_counted_again_for_keys_that_may_come_back(uri: str) -> None:
    t = lookup_table(uri, "simple", "mor")
    t.delete(pa.table({"id": ["a5"], "region": ["eu"]}))
    found = t.upsert(pa.table({"id": ["a5", "a6"], "region": ["eu", "eu"], "v": [3, 3]})).lookup
    assert found is not None
    # base and log file, then the base file alone
    assert (found.keys, found.tagged, found.opened) == (2, 1, 3)


def test_the_lookup_is_described_in_words(uri: str) -> None:
    t = lookup_table(uri, "global_simple", "cow")
    lookup = t.upsert(NEXT).lookup
    assert lookup is not None
    assert str(lookup) == "keys: 3 of 4 found; files: 2, 0 ruled out by key range, 0 by bloom filter, 2 read"
    assert lookup.to_dict()["opened"] == 2


def test_the_lookup_of_a_bucket_table_is_described_in_words(uri: str) -> None:
    lookup = lookup_table(uri, "bucket", "cow").upsert(NEXT).lookup
    assert str(lookup) == "keys: 4 placed by their hash; data files read: 0"
