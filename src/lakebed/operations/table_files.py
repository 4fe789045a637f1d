"""Which files of a folder are a table's own, and their removal: all else in the folder stays."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence

from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import HOODIE
from lakebed.slices.listing import PARTITION_METADATA
from lakebed.storage.base import Storage
from lakebed.storage.parallel import delete_files

_log = logging.getLogger("lakebed")
# Instants of days, as releases before 0.10 wrote them, and of milliseconds.
_INSTANT_LENGTHS = (14, 17)
# What releases before 1.0 leave in a partition path whose ring of consistent hashing they change.
_RING_COMMIT = re.compile(r"\d{14}(\d{3})?\.commit")
_DISPLAYED = 5


def is_table_file(name: str) -> bool:
    """Whether a file outside of `.hoodie` has a name that only a Hudi table's writer gives: a base file, a log file,
    the metadata of a partition path, the checksum or the unfinished form of one of these.

    >>> is_table_file("a-0_0-1-2_20240102030405006.parquet"), is_table_file("part-0000.parquet")
    (True, False)
    """
    if name.endswith((".crc", ".tmp")):
        name = name[1:-4]  # a dot ahead, and the suffix
    if name.startswith(PARTITION_METADATA) or _RING_COMMIT.fullmatch(name):
        return True
    file = parse_base_file("", name, 0) or parse_log_file("", name, 0)
    return file is not None and len(file.instant) in _INSTANT_LENGTHS


def remove_table_files(storage: Storage, kept: Collection[str] = ()) -> list[str]:
    """Delete the table's files outside of `.hoodie`, without those of the paths `kept`, and the folders that are empty
    then. Returns the paths that stay because they are not the table's: other files, and tables in folders of their
    own."""
    left: list[str] = []
    for folder in storage.list_folders(""):
        if folder != HOODIE:
            left += _remove_below(storage, folder, kept)
    names = storage.list_names("")
    delete_files(storage, "", [name for name in names if is_table_file(name) and name not in kept])
    return left + [name for name in names if not is_table_file(name) and name not in kept]


def warn_of_left(storage: Storage, left: Sequence[str]) -> None:
    """Log which files of the folder stay."""
    if left:
        more = f" and {len(left) - _DISPLAYED} more" if len(left) > _DISPLAYED else ""
        _log.warning(
            "%s: %d files are not the table's and stay: %s%s",
            storage.url(),
            len(left),
            ", ".join(left[:_DISPLAYED]),
            more,
        )


def _remove_below(storage: Storage, folder: str, kept: Collection[str]) -> list[str]:
    paths = [info.path for info in storage.list(folder)]
    nested = tuple({path[: path.index(f"/{HOODIE}/") + 1] for path in paths if f"/{HOODIE}/" in path})
    own = [
        path
        for path in paths
        if path not in kept and is_table_file(path.rpartition("/")[2]) and not path.startswith(nested)
    ]
    staying = sorted({*paths} - {*own})
    if not staying:
        storage.delete_folder(folder)
        return []
    by_folder: dict[str, list[str]] = {}
    for path in own:
        parent, _, name = path.rpartition("/")
        by_folder.setdefault(parent, []).append(name)
    for parent, names in sorted(by_folder.items(), reverse=True):
        delete_files(storage, parent, names)
        if not any(path.startswith(f"{parent}/") for path in staying):
            storage.delete_folder(parent)
    return [path for path in staying if path not in kept]
