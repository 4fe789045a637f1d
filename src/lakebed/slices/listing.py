"""A table's data files, listed by its folders or by its metadata table; and which of them count: a base file that no
write stat names is left from a lost task attempt, or the commit is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, compress, pairwise
from operator import methodcaller
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.file_names import BASE_EXTENSIONS, CHANGE_LOG_SUFFIX, parse_base_file, parse_log_file
from lakebed.format.hashes import plain_strings
from lakebed.model import HOODIE, BaseFile, FileGroupId, FileSlice, Instant, LogFile, WriteStat, path_in
from lakebed.schema.plain_arrow import as_numpy, sorted_rows
from lakebed.storage.base import FileInfo, Storage
from lakebed.storage.parallel import is_remote, parallel_map
from lakebed.timeline.timeline import Timeline

if TYPE_CHECKING:
    from lakebed.slices.metadata_lookups import MetadataLookups

PARTITION_METADATA = ".hoodie_partition_metadata"
# What releases before 1.0 note as the size of the log files of a rollback.
_NO_SIZE = 1
# So many folders are listed at a time where an answer is long under way.
_LISTERS = 16

FileGroups = Callable[[pa.Array, pa.Array], pa.Array]
"""A choice of file groups: decides for files, given by file id and bytes, which are of a selected group."""


def groups_of_ids(file_ids: Collection[str], *, or_smaller_than: int = 0) -> FileGroups:
    """The file groups with these ids, and all that have a file of fewer than `or_smaller_than` bytes."""
    named = pa.array(list(file_ids), pa.string())

    def chosen(ids: pa.Array, sizes: pa.Array) -> pa.Array:
        small = ids.filter(pc.less(sizes, pa.scalar(or_smaller_than, pa.int64())))
        return pc.is_in(ids, value_set=pa.concat_arrays([named, pc.unique(small)]))

    return chosen


@dataclass(frozen=True, slots=True)
class Listing:
    """The files under the table folder, by kind, whether they count or not. If only some partition paths were listed,
    `partitions` are those of them that exist."""

    base_files: tuple[BaseFile, ...]
    log_files: tuple[LogFile, ...]
    partitions: tuple[str, ...]

    def of_groups(self, groups: FileGroups) -> Listing:
        """The files of some file groups."""
        files = (*self.base_files, *self.log_files)
        ids, sizes = pa.array([f.file_id for f in files], pa.string()), pa.array([f.size for f in files], pa.int64())
        flags = groups(ids, sizes).to_pylist()
        base, logs = flags[: len(self.base_files)], flags[len(self.base_files) :]
        return Listing(tuple(compress(self.base_files, base)), tuple(compress(self.log_files, logs)), self.partitions)


def list_table(storage: Storage, partitions: Collection[str] | None = None) -> Listing:
    """List the whole table, or only some partitions' folders."""
    base: list[BaseFile] = []
    logs: list[LogFile] = []
    folders: set[str] = set()

    def listed(prefix: str) -> list[FileInfo]:
        return list(storage.list(prefix, recursive=partitions is None))

    prefixes = [""] if partitions is None else sorted(set(partitions))
    for info in chain.from_iterable(parallel_map(listed, prefixes, _LISTERS if is_remote(storage) else 1)):
        folder, _, name = info.path.rpartition("/")
        if folder == HOODIE or folder.startswith(HOODIE + "/"):
            continue
        if name.startswith(PARTITION_METADATA):
            folders.add(folder)
        elif b := parse_base_file(folder, name, info.size):
            base.append(b)
            folders.add(folder)
        elif log := parse_log_file(folder, name, info.size):
            logs.append(log)
            folders.add(folder)
    return Listing(tuple(base), tuple(logs), tuple(sorted(folders)))


def newest_base_files(rows: pa.Table, ids: pa.Array, counts: Callable[[BaseFile], bool]) -> list[BaseFile]:
    """The base files of each file group from the newest one down to the first that counts, from rows of `partition`,
    `name` and `size` and their file ids: a file group that is written often has many files that no reader needs any
    more, until they are cleaned."""
    instants = pc.replace_substring_regex(plain_strings(rows["name"]), r"^.*_([0-9]+)\.[a-zA-Z0-9]+$", r"\1")
    by: list[tuple[str, Literal["ascending", "descending"]]] = [("partition", "ascending"), ("id", "ascending")]
    keyed = rows.append_column("id", ids).append_column("instant", instants)
    keyed = keyed.append_column("row", pa.array(range(len(rows)), pa.int64()))
    keyed = sorted_rows(keyed, [*by, ("instant", "descending"), ("row", "descending")]).combine_chunks()
    files: list[BaseFile] = []
    # where each file group begins: Arrow's grouping keeps no order
    begins = np.zeros(len(keyed), np.bool_)
    begins[:1] = True
    for column in (keyed["partition"].combine_chunks(), keyed["id"].combine_chunks()):
        begins[1:] |= as_numpy(pc.not_equal(column[1:], column[:-1]))
    for start, end in pairwise([*np.flatnonzero(begins).tolist(), len(keyed)]):
        for at in range(start, end):
            folder, name, size = [keyed[column][at].as_py() for column in ("partition", "name", "size")]
            file = parse_base_file(folder, name, size)
            if file is not None:
                files.append(file)
                if counts(file):
                    break
    return files


def list_metadata(
    metadata: MetadataLookups,
    storage: Storage,
    partitions: Collection[str] | None = None,
    groups: FileGroups | None = None,
    counts: Callable[[BaseFile], bool] = lambda _: True,
) -> Listing:
    """The files that the metadata table lists: of the whole table, of some partitions, or of some file groups. For a
    file group without log files, files older than the newest base file that `counts` are left out."""
    rows = metadata.files(partitions)
    base: list[BaseFile] = []
    if groups is not None:
        ids = pc.replace_substring_regex(plain_strings(rows["name"]), r"^\.?([^_]*)_.*$", r"\1")
        mask = groups(ids, rows["size"].combine_chunks())
        rows, ids = rows.combine_chunks().filter(mask), ids.filter(mask)
        names = plain_strings(rows["name"])
        is_log = pc.and_not(pc.starts_with(names, "."), pc.ends_with(names, CHANGE_LOG_SUFFIX))
        logged = pc.is_in(ids, value_set=ids.filter(is_log))
        base = newest_base_files(rows.filter(pc.invert(logged)), ids.filter(pc.invert(logged)), counts)
        rows = rows.filter(logged)
    logs: list[LogFile] = []
    for folder, name, size in zip(*[column.to_pylist() for column in rows.columns], strict=True):
        if b := parse_base_file(folder, name, size):
            base.append(b)
        elif log := parse_log_file(folder, name, size if size > _NO_SIZE else _size(storage, folder, name)):
            logs.append(log)
    paths = metadata.partitions() if partitions is None else tuple(sorted({f.partition for f in (*base, *logs)}))
    return Listing(tuple(base), tuple(logs), paths)


def _size(storage: Storage, folder: str, name: str) -> int:
    info = storage.head(path_in(folder, name))
    return info.size if info is not None else 0


@dataclass(slots=True)
class NamedFiles:
    """The base files that write stats name, and those that the caller asked for although no write stat names them.
    `sizes` are the sizes of the named files by instant and path; they are shared by the views of a table. The sizes of
    an instant that names no files, or is archived, are empty."""

    timeline: Timeline
    sizes: dict[str, dict[str, int]]
    _unnamed: list[BaseFile] = field(default_factory=list[BaseFile])

    def has(self, base_file: BaseFile) -> bool:
        """Whether the file counts: a write stat of its instant names it, or the instant is archived or names no files.

        Raises `CorruptFile` if the file has another size than its commit wrote.
        """
        named = self.sizes.get(base_file.instant)
        if named is None:
            instant = self.timeline.commit(base_file.instant)
            named = self.sizes[base_file.instant] = {} if instant is None else self._sizes(instant)
        size = named.get(base_file.path)
        if size and base_file.size != size:
            raise CorruptFile(
                f"base file {base_file.path} has {base_file.size} bytes, its commit wrote {size}",
                hint="Restore the file from a copy.",
                context={"path": base_file.path},
            )
        if named and size is None:
            self._unnamed.append(base_file)
            return False
        return True

    def check(self, listed: Collection[BaseFile], latest: Iterable[FileSlice], *, every_group: bool) -> None:
        """Raise `CorruptFile` if a file that no write stat names was not left by a lost task attempt: its commit names
        another file of the file group, which is missing. With `every_group` of the partition paths listed, also if the
        commit names a missing file of a group that has no file."""
        if not self._unnamed:
            return
        paths = {base.path for base in listed}
        newest = {(s.partition, s.file_id): s.base_file.instant for s in latest if s.base_file is not None}
        for file in self._unnamed:
            group: FileGroupId = (file.partition, file.file_id)
            if newest.get(group, "") > file.instant:
                continue
            named_paths = [stat.path for stat in self._stats_of(file)]
            if named_paths and not paths.intersection(named_paths):
                raise self._misnamed(file, f"the one of its file group names {named_paths[0]}")
            missing = self._missing(file, paths, newest.keys()) if every_group and not named_paths else None
            if missing is not None:
                raise self._misnamed(file, f"another one names {missing}")

    def _misnamed(self, file: BaseFile, instead: str) -> CorruptFile:
        name = f"{self.timeline.config.timeline_path}/{self._commit(file).file_name}"
        return CorruptFile(
            f"no write stat of {name} names base file {file.path}; {instead}, which is not there",
            hint="Restore the instant's file from a copy.",
            context={"path": name, "instant": file.instant, "file": file.path},
        )

    def _missing(self, file: BaseFile, listed: Collection[str], groups: Collection[FileGroupId]) -> str | None:
        """The path of a base file that the commit of `file` names in the same partition path, and whose file group has
        no file at all and was not replaced; None if there is none. Cleaning cannot be the reason: it leaves the newest
        file of each group."""
        replaced = self.timeline.replaced_files
        for stat, base in self._base_stats(file):
            ids = {(file.partition, name) for name in (stat.file_id, base.file_id if base is not None else "")}
            if stat.path not in listed and not any(group in groups or group in replaced for group in ids):
                return stat.path
        return None

    def _sizes(self, instant: Instant) -> dict[str, int]:
        stats = self.timeline.commit_metadata(instant).stats.values()
        sizes = {s.path: s.file_size for group in stats for s in group}
        ends = tuple([f"_{instant.time}{extension}" for extension in BASE_EXTENSIONS])
        if sizes and not any(map(methodcaller("endswith", ends), sizes)):
            raise CorruptFile(
                f"{self.timeline.config.timeline_path}/{instant.file_name} names no file of its own instant",
                hint="It was overwritten by another commit's body; restore it from a copy.",
                context={"path": f"{self.timeline.config.timeline_path}/{instant.file_name}"},
            )
        return sizes

    def _commit(self, file: BaseFile) -> Instant:
        instant = self.timeline.commit(file.instant)
        assert instant is not None
        return instant

    def _stats_of(self, file: BaseFile) -> Iterator[WriteStat]:
        """The write stats of base files of the file's group, by their file id or their path."""
        for stat, base in self._base_stats(file):
            if file.file_id in (stat.file_id, base.file_id if base is not None else None):
                yield stat

    def _base_stats(self, file: BaseFile) -> Iterator[tuple[WriteStat, BaseFile | None]]:
        """Yields the write stats of base files in the partition path of a file, each with the file that its path names,
        None if the path does not name a base file."""
        for stat in self.timeline.commit_metadata(self._commit(file)).stats.get(file.partition, ()):
            folder, _, name = stat.path.rpartition("/")
            # an empty path is a delete that emptied the group's file
            if stat.path and parse_log_file(folder, name, 0) is None:
                yield stat, parse_base_file(folder, name, 0)
