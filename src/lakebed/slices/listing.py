"""Listing a table's data files: one listing, names parsed, everything else left aside."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import HOODIE, BaseFile, LogFile
from lakebed.storage.base import Storage

PARTITION_METADATA = ".hoodie_partition_metadata"


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies under the table folder, by kind; nothing is judged yet."""

    base_files: tuple[BaseFile, ...]
    log_files: tuple[LogFile, ...]
    partitions: tuple[str, ...]


def list_table(storage: Storage, partitions: Collection[str] | None = None) -> Listing:
    """List the whole table, or only some partitions' folders."""
    base: list[BaseFile] = []
    logs: list[LogFile] = []
    found: set[str] = set()
    prefixes = [("", True)] if partitions is None else [(p, False) for p in sorted(set(partitions))]
    for prefix, recursive in prefixes:
        for info in storage.list(prefix, recursive=recursive):
            folder, _, name = info.path.rpartition("/")
            if folder == HOODIE or folder.startswith(HOODIE + "/"):
                continue
            if name.startswith(PARTITION_METADATA):
                found.add(folder)
            elif b := parse_base_file(folder, name, info.size):
                base.append(b)
                found.add(folder)
            elif log := parse_log_file(folder, name, info.size):
                logs.append(log)
                found.add(folder)
    return Listing(tuple(base), tuple(logs), tuple(sorted(found)))
