"""Which base files their commits name: what a lost task attempt left beside the committed file is in no write stat."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from lakebed.errors import CorruptFile
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import BaseFile, FileGroupId, FileSlice, Instant, WriteStat
from lakebed.timeline.timeline import Timeline


@dataclass(slots=True)
class NamedFiles:
    """The base files that write stats name, and those that were asked for and that none names. `sizes` are the sizes of
    the named files by instant and path; they are shared by the views of a table."""

    timeline: Timeline
    sizes: dict[str, dict[str, int]]
    _unnamed: list[BaseFile] = field(default_factory=list[BaseFile])

    def has(self, base_file: BaseFile) -> bool:
        """Whether the file counts: a write stat of its instant names it, or the instant is archived, or names no files.

        Raises `CorruptFile` where the file has another size than its commit wrote.
        """
        instant = self.timeline.commit(base_file.instant)
        if instant is None:
            return True
        named = self._sizes(instant)
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
        """Raise `CorruptFile` where a file that no write stat names is not that of a lost task attempt: the commit says
        that it wrote to the file group, and the file that it names is not there. Where `every_group` of the partition
        paths was listed, also where it says so of a file group that is not there."""
        if not self._unnamed:
            return
        paths = {base.path for base in listed}
        newest = {(s.partition, s.file_id): s.base_file.instant for s in latest if s.base_file is not None}
        for file in self._unnamed:
            group: FileGroupId = (file.partition, file.file_id)
            if newest.get(group, "") > file.instant:
                continue
            own = [stat.path for stat in self._stats_of(file)]
            if own and not paths.intersection(own):
                raise self._misnamed(file, f"the one of its file group names {own[0]}")
            missing = self._missing(file, paths, newest.keys()) if every_group and not own else None
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
        """A base file that the commit names in the partition path of this one, of a file group that has no file at all
        and that nothing replaced: cleaning leaves the newest of each."""
        replaced = self.timeline.replaced_files()
        for stat, base in self._base_stats(file):
            ids = {(file.partition, name) for name in (stat.file_id, base.file_id if base is not None else "")}
            if stat.path not in listed and not any(group in groups or group in replaced for group in ids):
                return stat.path
        return None

    def _sizes(self, instant: Instant) -> dict[str, int]:
        if instant.time not in self.sizes:
            stats = self.timeline.commit_metadata(instant).stats.values()
            sizes = {s.path: s.file_size for group in stats for s in group}
            if sizes and not any(path.endswith(f"_{instant.time}.parquet") for path in sizes):
                raise CorruptFile(
                    f"{self.timeline.config.timeline_path}/{instant.file_name} names no file of its own instant",
                    hint="It was overwritten by another commit's body; restore it from a copy.",
                    context={"path": f"{self.timeline.config.timeline_path}/{instant.file_name}"},
                )
            self.sizes[instant.time] = sizes
        return self.sizes[instant.time]

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
        """The write stats of base files in the file's partition path, with the file that the path names."""
        for stat in self.timeline.commit_metadata(self._commit(file)).stats.get(file.partition, ()):
            folder, _, name = stat.path.rpartition("/")
            # an empty path is a delete that emptied the group's file
            if stat.path and parse_log_file(folder, name, 0) is None:
                yield stat, parse_base_file(folder, name, 0)
