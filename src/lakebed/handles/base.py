"""The protocol of handles: a handle writes the incoming rows of one file group. Read this file first.

`create.py` writes a new file group, `merge.py` the next base file of a slice, `append.py` log files of a slice. A
target is an existing file group, or a new one whose name is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Protocol

from lakebed.engine.base import Task
from lakebed.expressions.partition_paths import PathCheck
from lakebed.format.file_names import fixed_file_id, new_file_id
from lakebed.handles.file_writer import FileFormat, write_partition_metadata
from lakebed.index.base import GroupNames, KeyHash
from lakebed.merge.incoming import Incoming, Intake
from lakebed.merge.meta_columns import FreshMeta
from lakebed.merge.row_merge import OnMatch
from lakebed.merge.rules import MergeRules
from lakebed.model import INSERT_OPERATION, UPDATE_OPERATION, FileGroupId, FileSlice
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Durable, Storage
from lakebed.write_status import WriteStatus

if TYPE_CHECKING:
    from lakebed.handles.matched import KeyedClauses


@dataclass(frozen=True, slots=True)
class Split:
    """A split of the file groups of a partition path: the hash `before` gives their present numbers, the hash `after`
    the new ones."""

    before: KeyHash
    after: KeyHash

    @property
    def factor(self) -> int:
        """The number of new file groups into which each file group splits."""
        return self.after.groups // self.before.groups

    def numbers(self, number: int) -> tuple[int, ...]:
        """The numbers of the new file groups that the file group with this number splits into."""
        numbers = self.before.spread(number, self.after)
        assert numbers is not None
        return numbers


@dataclass(frozen=True, slots=True)
class Target:
    """A file group to write to; `slice` is its latest file slice, None for a new group. With `size_limited` it grows to
    at most the maximum file size; further rows open another file group.

    `rewrites`: the base file is rewritten; otherwise a merge-on-read table appends the rows. `log_instant` is the
    instant of a slice that a pending compaction has begun: before table version 8 it is in the names of the slice's log
    files. Without a `slice` it is the instant of a clustering that is going to make the file group: it is in the names
    of the group's log files, and `parents` are the slices that hold its rows until then. For a bucket with several file
    groups, `among` are the existing ones, and `bucket` is the number that names further ones. With `split` the incoming
    rows and those of the `slice` go to new file groups.
    """

    file_id: str
    slice: FileSlice | None
    size_limited: bool
    rewrites: bool = False
    log_instant: str | None = None
    bucket: int | None = None
    among: tuple[FileSlice, ...] | None = None
    parents: tuple[FileSlice, ...] = ()
    split: Split | None = None

    @property
    def stored_in(self) -> tuple[FileSlice, ...]:
        """The file slices that hold the rows of the file group. For a file group that a resize creates, these are the
        slices of its parents."""
        if self.among is not None:
            return self.among
        return self.parents if self.slice is None else (self.slice,)


class Targets(Protocol):
    def of(self, partition: str, group: int) -> Target: ...


@dataclass(frozen=True, slots=True)
class PlannedTargets:
    """Targets by group number, as the plan lists them."""

    targets: tuple[Target, ...]

    def of(self, partition: str, group: int) -> Target:
        return self.targets[group]


@dataclass(frozen=True, slots=True)
class NamedTargets:
    """Targets by partition path and number: the `existing` ones, otherwise new file groups that the index names."""

    existing: Mapping[tuple[str, int], Target]
    names: GroupNames

    def of(self, partition: str, group: int) -> Target:
        target = self.existing.get((partition, group))
        return target or Target(self.names.file_id(partition, group), None, size_limited=False)


@dataclass(frozen=True, slots=True)
class HashedTargets:
    """One file group per (partition path, number), or `several`; a number without a file group gets an id made from the
    instant. With `fixed_ids` the id follows from the number alone, so that writers that do not know of each other use
    the same file group. The ids in `replaced`, which readers ignore, are skipped."""

    instant: str
    existing: dict[tuple[str, int], FileSlice]
    fixed_ids: bool = False
    log_instants: Mapping[FileGroupId, str] = field(default_factory=dict[FileGroupId, str])
    several: Mapping[tuple[str, int], tuple[FileSlice, ...]] | None = None
    replaced: frozenset[FileGroupId] = frozenset()
    splits: Mapping[str, Split] = field(default_factory=dict[str, Split])
    """The partition paths all of whose file groups split."""

    def of(self, partition: str, group: int) -> Target:
        file_slice = self.existing.get((partition, group))
        if partition in self.splits:
            file_id = (
                new_file_id(self.instant, partition, group, bucket=group) if file_slice is None else file_slice.file_id
            )
            return Target(file_id, file_slice, size_limited=False, split=self.splits[partition])
        if file_slice is not None:
            at = self.log_instants.get((partition, file_slice.file_id))
            return Target(file_slice.file_id, file_slice, size_limited=False, log_instant=at)
        if self.several is not None:
            among = self.several.get((partition, group), ())
            file_id = new_file_id(self.instant, partition, group, bucket=group)
            return Target(file_id, None, size_limited=True, bucket=group, among=among)
        if not self.fixed_ids:
            return Target(new_file_id(self.instant, partition, group, bucket=group), None, size_limited=False)
        ids = (fixed_file_id(group, n) for n in count())
        return Target(next(i for i in ids if (partition, i) not in self.replaced), None, size_limited=False)


class Handle(Protocol):
    """A handle that writes one file group in one task. It exists from the group's first row until it returns the
    statuses."""

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        """Write the rows. Returns one status per file, or one without a file if nothing had to be written.

        Rows of a table that is sorted come in the order of their keys. What was begun is given up if this raises.
        """
        ...


@dataclass(frozen=True, slots=True)
class GroupJob:
    """The common data of all file groups of one write.

    `on_match` is what happens to a stored row of the same key. `located`: the keys of rows for existing file groups
    were looked up, so each has a stored row. With `delete_lookup` a delete without an ordering value takes that of the
    stored row. With `clauses` the rows are the source of a MERGE, whose clauses decide what is written. With `stored`
    the rows are stored rows, so that each delete counts. With `skip_unchanged` rows that would leave the stored row of
    their key unchanged are not written. `durable` is "later" where the process that writes the files also completes the
    write. With `reveals` rows of new keys are seen even if log files delete their key with a greater ordering value;
    `may_rewrite`: a base file may be rewritten for that.
    """

    reader: SliceReader
    instant: str
    format: FileFormat
    intake: Intake
    on_match: OnMatch
    max_file_size: int
    path_check: PathCheck
    located: bool = False
    delete_lookup: bool = False
    clauses: KeyedClauses | None = None
    stored: bool = False
    durable: Durable = True
    skip_unchanged: bool = False
    reveals: bool = False
    may_rewrite: bool = True

    @property
    def storage(self) -> Storage:
        return self.reader.storage

    @property
    def rules(self) -> MergeRules:
        return self.intake.rules

    @property
    def memory(self) -> int:
        """The number of bytes of rows that a task may buffer."""
        return self.intake.memory

    @property
    def takes_new_keys_only(self) -> bool:
        """Whether rows of stored keys are left out or refused."""
        return self.on_match in ("skip", "fail")


@dataclass(frozen=True, slots=True)
class GroupWrite:
    """One file group of a write, as its handle gets it. With `new_partition` the partition path may not exist yet,
    unless other groups of the process have `prepared` it. `marked` is whether the marker of a new group's first base
    file is written."""

    job: GroupJob
    partition: str
    number: int
    target: Target
    task: Task
    new_partition: bool = False
    prepared: set[str] = field(default_factory=set[str])
    marked: bool = False

    @property
    def operation(self) -> str:
        """The value of `_hoodie_operation` for the rows of a log file. Rows whose keys were not looked up count as
        updates, since real Hudi cannot read a log file with a null there."""
        return INSERT_OPERATION if self.target.slice is None or self.job.takes_new_keys_only else UPDATE_OPERATION

    @property
    def instant(self) -> str:
        """The instant of the write."""
        return self.job.instant

    def prepare_partition(self) -> None:
        """Create the partition path and its metadata file, unless they exist. Raises `InvalidRecord` for a path that
        the table cannot have."""
        if not self.new_partition or self.partition in self.prepared:
            return
        self.job.path_check.require(self.partition)
        write_partition_metadata(self.job.storage, self.partition, self.instant)
        self.prepared.add(self.partition)

    @property
    def base_of_positions(self) -> str | None:
        """The instant of the base file whose row positions log blocks store; None if they do not store positions."""
        file_slice = self.target.slice
        if file_slice is None or file_slice.base_file is None or not self.job.format.settings.record_positions:
            return None
        return file_slice.base_file.instant if self.job.reader.config.has_record_positions else None

    @property
    def fresh_meta(self) -> FreshMeta:
        """The meta columns of the group's new and changed rows."""
        return self.job.format.fresh_meta(self.instant, self.partition, self.task)


HandleType = Callable[[GroupWrite], Handle]
"""Makes the handle of a group: a class, or anything that pickles, since it is sent to tasks."""
