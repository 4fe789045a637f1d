"""Laying out a write: which file group takes which rows. Pure: a profile and the table's files in, a plan out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import GROUP
from lakebed.format.file_names import new_file_id
from lakebed.handles.base import PlannedTargets, Target
from lakebed.model import FILE_ID, PARTITION_PATH, BaseFile, FileGroupId, FileSlice

UPDATES_SCHEMA = pa.schema([(PARTITION_PATH, pa.string()), (FILE_ID, pa.string()), (GROUP, pa.int32())])
# With deferred small files, new rows go to new files until a partition path has this many small ones. From then on they
# fill the smallest.
MAX_SMALL_FILES = 10
INSERTS_SCHEMA = pa.schema(
    [(PARTITION_PATH, pa.string()), ("bounds", pa.list_(pa.float64())), ("groups", pa.list_(pa.int32()))]
)


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """One file group of a plan, with the number of rows that update it and of rows inserted into it."""

    number: int
    partition: str
    target: Target
    updates: int
    inserts: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """All file groups of a write, and the two tables by which rows are sent to them."""

    groups: tuple[PlannedGroup, ...]
    updates: pa.Table
    inserts: pa.Table

    @property
    def rows(self) -> int:
        return sum(group.updates + group.inserts for group in self.groups)

    @property
    def targets(self) -> PlannedTargets:
        return PlannedTargets(tuple(g.target for g in self.groups))


def assign(
    profile: pa.Table,
    slices: Sequence[FileSlice],
    *,
    instant: str,
    record_size: float,
    settings: WriteSettings,
    avoid: Collection[tuple[str, str]] = (),
    fill_small_files: bool = True,
    appends: bool = False,
    renewed: Collection[FileGroupId] = (),
    log_instants: Mapping[FileGroupId, str] | None = None,
    origins: Mapping[FileGroupId, Sequence[FileGroupId]] | None = None,
) -> Assignment:
    """The file groups of a write: updates go to the file group of their key; inserts fill small files first, and the
    others go to new file groups.

    `profile` has (`_hoodie_partition_path`, `_file_id`, `rows`), a null file id for inserts. `record_size` is the mean
    encoded bytes of a row. File groups in `avoid` take no inserts. Hudi's rules: a file below the small-file limit
    takes as many rows as fit below the maximum file size; a new group takes as many as fill one file.

    If the table `appends` its updates (merge-on-read), only files without log files take inserts: the
    `max_filled_files` smallest of each partition path. Their file groups are rewritten, with their updates. With
    deferred small files, rows go to new file groups while a partition path has fewer than `MAX_SMALL_FILES` small
    files. Then they go to the smallest one, whether it has log files or not. `renewed` are file groups that are
    rewritten, unless they are in `avoid` or in `log_instants`. `log_instants` names the instants of slices that pending
    compactions have begun. A file id without a slice belongs to a file group that is yet to be made; `origins` names
    the file groups whose rows it will hold.
    """
    latest = {(s.partition, s.file_id): s for s in slices}
    update_rows: dict[tuple[str, str], int] = {}
    insert_rows: dict[str, int] = defaultdict(int)
    for row in profile.to_pylist():  # one a file group
        if row[FILE_ID] is None:
            insert_rows[row[PARTITION_PATH]] += row["rows"]
        else:
            update_rows[row[PARTITION_PATH], row[FILE_ID]] = row["rows"]
    renewed = {group for group in renewed if group not in avoid and group not in (log_instants or {})}
    plan = _Plan(latest, update_rows, instant, log_instants or {}, renewed, origins or {})
    for key in sorted(update_rows):
        plan.existing(key)
    for partition, rows in sorted(insert_rows.items()):
        small = _small_files(partition, latest, settings, avoid, appends=appends) if fill_small_files else []
        plan.place(partition, rows, small, record_size, settings)
    return plan.assignment()


def _small_files(
    partition: str,
    latest: Mapping[tuple[str, str], FileSlice],
    settings: WriteSettings,
    avoid: Collection[tuple[str, str]],
    *,
    appends: bool,
) -> list[BaseFile]:
    slices = [s for key, s in latest.items() if s.partition == partition and key not in avoid]
    deferred = appends and settings.small_files == "deferred"
    files = [s.base_file for s in slices if deferred or not (appends and s.log_files)]
    small = [f for f in files if f is not None and f.size < settings.max_small_file_size]
    if deferred:
        # only the smallest file takes rows: each row is rewritten few times and the number of files does not grow
        return sorted(small, key=lambda f: (f.size, f.name))[:1] if len(small) >= MAX_SMALL_FILES else []
    if appends:
        return sorted(small, key=lambda f: (f.size, f.name))[: max(0, settings.max_filled_files)]
    return sorted(small, key=lambda f: f.name)


class _Plan:
    def __init__(
        self,
        latest: Mapping[tuple[str, str], FileSlice],
        update_rows: Mapping[tuple[str, str], int],
        instant: str,
        log_instants: Mapping[FileGroupId, str],
        renewed: Collection[FileGroupId],
        origins: Mapping[FileGroupId, Sequence[FileGroupId]],
    ) -> None:
        self._renewed = renewed
        self._origins = origins
        self._log_instants = log_instants
        self._latest = latest
        self._update_rows = update_rows
        self._instant = instant
        self._groups: list[tuple[str, Target, int]] = []
        self._inserted: dict[int, int] = defaultdict(int)
        self._numbers: dict[tuple[str, str], int] = {}
        self._routes: dict[str, list[tuple[int, int]]] = {}

    def existing(self, key: tuple[str, str]) -> int:
        if key not in self._numbers:
            at = self._log_instants.get(key)
            parents = tuple(self._latest[parent] for parent in self._origins.get(key, ()) if parent in self._latest)
            target = Target(key[1], self._latest.get(key), size_limited=True, log_instant=at, parents=parents)
            self._numbers[key] = self._add(key[0], target, self._update_rows.get(key, 0))
        return self._numbers[key]

    def _add(self, partition: str, target: Target, updates: int) -> int:
        self._groups.append((partition, target, updates))
        return len(self._groups) - 1

    def place(
        self, partition: str, rows: int, small: Sequence[BaseFile], record_size: float, settings: WriteSettings
    ) -> None:
        left = rows
        placed: list[tuple[int, int]] = []
        for file in small:
            room = int((settings.max_file_size - file.size) // record_size)
            take = min(room, left)
            if take <= 0:
                continue
            placed.append((self.existing((partition, file.file_id)), take))
            left -= take
            if left == 0:
                break
        per_group = (
            max(1, math.ceil(settings.max_file_size / record_size))
            if settings.insert_auto_split
            else settings.insert_split_size
        )
        while left > 0:
            take = min(per_group, left)
            number = len(self._groups)
            file_id = new_file_id(self._instant, partition, number)
            placed.append((self._add(partition, Target(file_id, None, size_limited=True), 0), take))
            left -= take
        self._routes[partition] = placed
        for number, count in placed:
            self._inserted[number] += count

    def assignment(self) -> Assignment:
        groups = tuple(
            PlannedGroup(n, partition, self._as_written(n, partition, target), updates, self._inserted.get(n, 0))
            for n, (partition, target, updates) in enumerate(self._groups)
        )
        rows = [(key[0], key[1], self._numbers[key]) for key in sorted(self._update_rows)]
        updates = pa.Table.from_arrays(
            [pa.array([row[i] for row in rows], UPDATES_SCHEMA.field(i).type) for i in range(3)], schema=UPDATES_SCHEMA
        )
        return Assignment(groups, updates, self._insert_table())

    def _as_written(self, number: int, partition: str, target: Target) -> Target:
        rewrites = number in self._inserted or (partition, target.file_id) in self._renewed
        return replace(target, rewrites=rewrites)

    def _insert_table(self) -> pa.Table:
        bounds: list[list[float]] = []
        for placed in self._routes.values():
            total = sum(count for _, count in placed)
            running = 0
            route_bounds: list[float] = []
            for _, count in placed:
                running += count
                route_bounds.append(running / total)
            bounds.append(route_bounds)
        columns = [
            pa.array(list(self._routes), pa.string()),
            pa.array(bounds, pa.list_(pa.float64())),
            pa.array([[n for n, _ in placed] for placed in self._routes.values()], pa.list_(pa.int32())),
        ]
        return pa.Table.from_arrays(columns, schema=INSERTS_SCHEMA)
