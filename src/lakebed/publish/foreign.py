"""The interface of a format of published lists, and the state of a list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from lakebed.errors import UnsupportedFeature
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.publish.data_files import DataFile
from lakebed.publish.versions import Position, TableVersion
from lakebed.storage.base import Storage
from lakebed.timeline.instants import parse_time

FRESH = "lakebed.log-files"
"""The property of versions that show the rows of log files: `TableVersion.log_files`."""

_LISTS_BYTES = 64 << 20
# In memory an entry of a list takes several times its text.
_BYTES_A_FILE = 3000


@dataclass(frozen=True, slots=True)
class ForeignList:
    """The newest version of a list. `schema` is the format's text of the columns, `files` are the paths of the data
    files below the table, `content` is the data that the format itself needs to write the next version. With `is_fresh`
    the version shows the rows of log files; `log_files` is then its `TableVersion.log_files`."""

    version: int
    position: Position
    schema: str
    partition_columns: tuple[str, ...]
    files: Collection[str]
    content: Any
    is_fresh: bool = False
    log_files: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a new version: the added files and the paths of the removed ones. `is_readable` takes the
    requested time of a commit: whether all files that it shows exist, or some are cleaned. `zone` is that of instant
    times. With `is_fresh` the rows of log files are shown; with `vectors`
    a format that has deletion vectors besides another form of masks uses vectors."""

    version: TableVersion
    schema: str
    partition_columns: tuple[str, ...]
    added: Sequence[DataFile]
    removed: Sequence[str]
    is_readable: Callable[[str], bool]
    zone: str
    table_name: str
    is_fresh: bool = False
    vectors: bool = False


class ListFormat(Protocol):
    """A format of lists. `folder` is the folder of its lists, below the table; `widening` are the types, from and to,
    that its readers widen when they read a file. `fresh_warning` is what is to be known about readers before a list
    shows the rows of log files; empty if all of them read it right or refuse it."""

    name: str
    folder: str
    fresh_warning: str
    widening: Sequence[tuple[str, str]]

    def schema_text(self, schema: pa.Schema, before: ForeignList | None) -> str:
        """The format's text of the columns, continuing those of the version before.

        Raises `UnsupportedFeature` for a type or a name that the format cannot have."""
        ...

    def is_list_file(self, name: str) -> bool:
        """Whether a file in `folder` with this name is one of a list."""
        ...

    def newest(self, storage: Storage) -> ForeignList | None:
        """The newest version of the table's list; None if there is no list.

        Raises `ForeignChange` for a version that lakebed did not write."""
        ...

    def append(self, storage: Storage, before: ForeignList | None, change: Change) -> ForeignList | None:
        """Write the next version, and return it. None if another process has written it: then nothing is changed."""
        ...

    def forget_earlier(self, storage: Storage, listed: ForeignList) -> int | None:
        """Delete all versions before this one, the newest, and the files that only they name. Readers see the same
        rows, and no earlier ones; values of files that left the list are in none of its files. Returns the number of
        deleted files; None if another process has written a version since."""
        ...


_NEWEST = BoundedCache[CacheEntry[ForeignList]](_LISTS_BYTES)


def cached_list(url: str) -> ForeignList | None:
    """The newest version of the list in this folder that this process has read or written; None if there is none. Other
    processes may have written newer versions."""
    newest = _NEWEST.get(url)
    return None if newest is None else newest.content


def cache_list(url: str, listed: ForeignList) -> ForeignList:
    """Cache the newest version of the list in a folder, and return it."""
    _NEWEST.put(url, CacheEntry(listed, _BYTES_A_FILE * (len(listed.files) + 1)))
    return listed


class ForeignChange(UnsupportedFeature):
    """Raised if a list has a version that lakebed did not write."""


def foreign_change(url: str, reason: str, folder: str) -> ForeignChange:
    return ForeignChange(
        f"{url} was not written by lakebed: {reason}",
        hint=f"Nothing is published over the changes of others. Move {folder} away and publish again: the list is then"
        " written again. Other writers of these files damage the table.",
        context={"path": url},
    )


def properties_of(change: Change) -> Mapping[str, str]:
    """The properties of a version that record the commit that it shows, and whether with the rows of log files."""
    position = change.version.position
    recorded = {
        "hudi.instant": position.instant,
        "hudi.completed": position.completed,
        "hudi.operation": change.version.operation,
    }
    return {**recorded, FRESH: change.version.log_files} if change.is_fresh else recorded


def position_of(properties: Mapping[str, str]) -> Position:
    """The commit that a version with these properties shows. Raises `KeyError` for one that lakebed did not write."""
    return Position(properties["hudi.instant"], properties["hudi.completed"])


def epoch_millis(instant: str, zone: str) -> int:
    """An instant time in milliseconds since 1970; 0 for an empty one.

    >>> epoch_millis("19700101000001000", "UTC")
    1000
    """
    return int(parse_time(instant, zone).timestamp() * 1000) if instant else 0
