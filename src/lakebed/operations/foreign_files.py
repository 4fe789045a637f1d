"""What a folder without a Hudi table holds: a table of another format, data files, or anything else."""

from __future__ import annotations

from collections import Counter

from lakebed.errors import TableExists, TableNotFound
from lakebed.model import HOODIE
from lakebed.properties.file import PROPERTIES_PATH
from lakebed.storage.base import Storage
from lakebed.timeline.instants import parse_instant_file

_DATA_FILES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro", "csv": "CSV", "tsv": "TSV", "json": "JSON"}
_READABLE = ("Parquet", "CSV", "TSV", "JSON")
# A folder of partitions is looked into so deep.
_MAX_DEPTH = 4
_DISPLAYED = 3
DELTA, ICEBERG = "a Delta Lake table", "an Iceberg table"
_DATA = frozenset((DELTA, ICEBERG, *(f"{kind} files" for kind in _DATA_FILES.values())))


def kind_of_folder(storage: Storage) -> str:
    """A phrase for the data in a table's folder outside `.hoodie`; empty if there is none."""
    names, folders = storage.list_names(""), [name for name in storage.list_folders("") if name != HOODIE]
    if "_delta_log" in folders:
        return DELTA
    if "metadata" in folders and any(name.endswith(".metadata.json") for name in storage.list_names("metadata")):
        return ICEBERG
    if not names and not folders:
        return ""
    return _kind_of_files(storage) or ", ".join(sorted([*names, *(f"{name}/" for name in folders)])[:_DISPLAYED])


def _kind_of_files(storage: Storage) -> str:
    """The kind of the data files in the folder, or in its first subfolder that has some."""
    folder = ""
    for _ in range(_MAX_DEPTH):
        names = storage.list_names(folder)
        suffixes = Counter(name.rpartition(".")[2].lower() for name in names if name[:1] not in "._")
        data_suffixes = [suffix for suffix, _ in suffixes.most_common() if suffix in _DATA_FILES]
        if data_suffixes:
            return f"{_DATA_FILES[data_suffixes[0]]} files"
        below = [name for name in storage.list_folders(folder) if name[:1] not in "._"]
        if not below:
            return ""
        folder = f"{folder}/{below[0]}".lstrip("/")
    return ""


def refuse_foreign_files(storage: Storage, *, only_data: bool = False) -> None:
    """Raise `TableExists` if a new table's folder contains other files; with `only_data` only a table of another format
    or data files count."""
    kind = kind_of_folder(storage)
    if not kind or (only_data and kind not in _DATA):
        return
    raise TableExists(
        f"the folder {storage.url()} is not empty: it holds {kind}",
        hint="choose an empty folder, or create the table with lakebed.create(..., allow_existing=True): then the other"
        " files stay next to it",
        context={"uri": storage.url(), "holds": kind},
    )


def no_table_here(storage: Storage, error: TableNotFound) -> TableNotFound:
    """The error for a folder without a table, which names the data in it and how to load them, or the file that a table
    has lost."""
    if _has_timeline(storage):
        return TableNotFound(
            f"the table at {storage.url()} has a timeline, but {PROPERTIES_PATH} is missing",
            hint="bring the file back from a copy of the table, or from an earlier version of the object",
            context={"uri": storage.url()},
        )
    kind = kind_of_folder(storage)
    uri = storage.spec.uri
    if kind in (DELTA, ICEBERG):
        way = f"lakebed.convert({uri!r}, new_uri, key=...)"
    elif kind.removesuffix(" files") in _READABLE:
        way = f"lakebed.load(new_uri, {uri!r}, key=...)"
    else:
        return error
    return TableNotFound(
        f"there is no Hudi table at {storage.url()}: it holds {kind}",
        hint=f"copy the rows to a table in another folder: {way}",
        context={"uri": storage.url(), "holds": kind},
    )


def _has_timeline(storage: Storage) -> bool:
    """Whether there is an instant of a table of any version."""
    names = (name for folder in (f"{HOODIE}/timeline", HOODIE) for name in storage.list_names(folder))
    return any(parse_instant_file(name, 8) or parse_instant_file(name, 6) for name in names)
