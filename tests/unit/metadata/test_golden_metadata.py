"""The metadata tables of the golden tables: lakebed reads what real Hudi shows, and what the data tables hold."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from lakebed.metadata.keys import partition_of

from .opened_tables import WITH_INDEXES, WITH_METADATA, Opened, opened

every_table = pytest.mark.parametrize("name", WITH_METADATA)
indexed_table = pytest.mark.parametrize("name", WITH_INDEXES)


def shown(table: Opened) -> dict[str, list[dict[str, Any]]]:
    """The records of each metadata partition as real Hudi shows them."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    dump = table.table.more("metadata.parquet")
    for row in dump.to_pylist():
        rows[row["metadata_partition"]].append(row)
    return rows


@every_table
def test_files(name: str) -> None:
    table = opened(name)
    expected = {row["key"]: dict(row["filesystemMetadata"]) for row in shown(table)["files"]}
    all_partitions = expected.pop("__all_partitions__")
    assert table.metadata.partitions() == tuple(
        sorted(partition_of(p) for p, info in all_partitions.items() if not info["isDeleted"])
    )
    found: dict[str, dict[str, int]] = {partition_of(key): {} for key in expected}
    for row in table.metadata.files().to_pylist():
        found[row["partition"]][row["name"]] = row["size"]
    assert found == {
        partition_of(key): {file: info["size"] for file, info in entries.items() if not info["isDeleted"]}
        for key, entries in expected.items()
    }


@indexed_table
def test_record_index(name: str) -> None:
    table = opened(name)
    expected = shown(table)["record_index"]
    if not expected:
        return
    found = [row for part in table.metadata.entries("record_index") for row in part.to_pylist()]
    assert len(found) == len(expected)
    by_key = {(row["key"], row["recordIndexMetadata"]["partitionName"]): row for row in expected}
    for row in found:
        info = by_key[row["key"], row["partition"]]["recordIndexMetadata"]
        high = f"{info['fileIdHighBits'] % 2**64:016x}"
        assert row["file_id"].replace("-", "").startswith(high)
    locations = table.metadata.record_locations(pa.array([row["key"] for row in found]))
    assert sorted(map(str, locations.to_pylist())) == sorted(map(str, found))
