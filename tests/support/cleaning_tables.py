"""What tests of cleaning and archival ask of a table: its data files, what views of the past need, savepoints."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import Instant
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.bodies.rollback import savepointed_paths
from lakebed.timeline.timeline import Timeline


def snapshot(table: Table, *, use_metadata: bool = True) -> Snapshot:
    return open_snapshot(open_storage(table.uri), use_metadata=use_metadata)


def timeline(table: Table) -> Timeline:
    return snapshot(table).timeline


def data_files(table: Table) -> set[str]:
    """The paths of all base and log files in the table's folders."""
    found: set[str] = set()
    for info in open_storage(table.uri).list():
        folder, _, name = info.path.rpartition("/")
        if not folder.startswith(".hoodie") and (parse_base_file(folder, name, 0) or parse_log_file(folder, name, 0)):
            found.add(info.path)
    return found


def files_of_views(table: Table, times: Iterable[str]) -> set[str]:
    """The files that the views of these moments are made of, by the folders."""
    whole = snapshot(table, use_metadata=False)
    found: set[str] = set()
    for time in times:
        for one in whole.at(time).file_slices():
            found |= {one.base_file.path} if one.base_file else set()
            found |= {log.path for log in one.log_files}
    return found


def savepoint(table: Table, instant: Instant) -> set[str]:
    """Make a savepoint of the view at a commit; gives the files that it names."""
    table.savepoints.create(instant.time)
    now = timeline(table)
    return {path for i in now.completed if i.time == instant.time for path in savepointed_paths(now.metadata(i))}
