"""Plans a change of the index: pure decisions over two hashes and the existing file slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from lakebed.format.file_names import bucket_of_file_id
from lakebed.handles.rebucket import Move
from lakebed.index.base import KeyHash
from lakebed.model import FileSlice
from lakebed.wording import Printed, count_text, size_text

Way = Literal["nothing", "split", "merge", "split and merge", "overwrite"]
_PREVIEWED = 10


@dataclass(frozen=True, slots=True)
class PartitionMoves:
    """The plan for one partition path: the slices that stay, and either moves that each read few slices and write few
    files, or a shuffle of all its rows. `uneven` is whether only some of its buckets are split."""

    path: str
    moves: tuple[Move, ...] = ()
    shuffled: tuple[FileSlice, ...] = ()
    kept: int = 0
    why: str = ""
    uneven: bool = False

    @property
    def way(self) -> Way:
        """The way in which the rows of the partition path get to their new file groups."""
        if self.shuffled:
            return "overwrite"
        splits = any(len(move.targets) > 1 for move in self.moves)
        merges = any(len(move.sources) > 1 or len(move.targets) == 1 for move in self.moves)
        if splits and merges:
            return "split and merge"
        return "split" if splits else "merge" if merges else "nothing"

    @property
    def sources(self) -> tuple[FileSlice, ...]:
        """The slices that are read and replaced."""
        return (*(file_slice for move in self.moves for file_slice in move.sources), *self.shuffled)

    @property
    def bytes(self) -> int:
        return sum(file_slice.size for file_slice in self.sources)


@dataclass(frozen=True, repr=False)
class RescalePlan(Printed):
    """The plan of a rescale or a change of the index: `before` and `after` describe the index, `partitions` how the
    rows of each partition path get to their locations, `rows` is the number of rewritten rows. `builds` are the indexes
    of the metadata table that are built for it, `notes` further remarks."""

    before: str
    after: str
    partitions: tuple[PartitionMoves, ...] = ()
    rows: int = 0
    builds: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def way(self) -> Way:
        """The costliest way that any partition path needs."""
        ways = {partition.way for partition in self.partitions}
        if "overwrite" in ways:
            return "overwrite"
        if "split and merge" in ways or {"split", "merge"} <= ways:
            return "split and merge"
        return "split" if "split" in ways else "merge" if "merge" in ways else "nothing"

    @property
    def slices(self) -> int:
        """The number of file slices that are read and replaced."""
        return sum(len(partition.sources) for partition in self.partitions)

    @property
    def bytes(self) -> int:
        """The bytes of the file slices that are read and replaced."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    def shuffle_bytes(self) -> int:
        """The bytes of the file slices whose rows are shuffled."""
        return sum(file_slice.size for part in self.partitions for file_slice in part.shuffled)

    @property
    def why(self) -> str:
        """A sentence with the reason for this way."""
        if self.way == "split" and any(partition.uneven for partition in self.partitions):
            return (
                "extendible: only the buckets that are too large are halved, as often as it takes, each in a task"
                " of its own, and all others stay; no shuffle"
            )
        return {
            "nothing": "every row is where the new index looks for it",
            "split": "multiple rehash: each bucket splits into whole new ones, so a task reads one file slice and"
            " writes its parts; no shuffle",
            "merge": "multiple rehash: whole buckets become one, so a task reads those slices and writes one file; no"
            " shuffle",
            "split and merge": "multiple rehash: some buckets split and others become one, each in a task of its own;"
            " no shuffle",
            "overwrite": next(
                (partition.why for partition in self.partitions if partition.why), "rows have no place yet"
            )
            + ", so all rows are read, shuffled once by their bucket, and written",
        }[self.way]

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "before": self.before,
            "after": self.after,
            "way": self.way,
            "why": self.why,
            "rows": self.rows,
            "bytes": self.bytes,
            "shuffle_bytes": self.shuffle_bytes,
            "file_slices": self.slices,
            "builds": list(self.builds),
            "notes": list(self.notes),
            "partitions": [
                {
                    "partition": p.path,
                    "way": p.way,
                    "file_slices": len(p.sources),
                    "kept": p.kept,
                    "bytes": p.bytes,
                }
                for p in self.partitions
            ],
        }

    def __str__(self) -> str:
        lines = [f"index: {self.before}", f"   to: {self.after}", f"  way: {self.why}"]
        shuffled = f", {size_text(self.shuffle_bytes)} of them shuffled" if self.shuffle_bytes else ""
        slices, rows = count_text(self.slices, "file slice"), count_text(self.rows, "row")
        lines.append(f" work: {slices}, {rows}, {size_text(self.bytes)}{shuffled}")
        lines += [f"   build: {name}" for name in self.builds]
        moving = [moves for moves in self.partitions if moves.sources]
        for moves in moving[:_PREVIEWED]:
            where = moves.path or "(no partition)"
            lines.append(f"    {where}: {moves.way}, {count_text(len(moves.sources), 'slice')} read, {moves.kept} stay")
        if len(moving) > _PREVIEWED:
            lines.append(f"    ... and {len(moving) - _PREVIEWED} more")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def plan_moves(
    slices: Sequence[FileSlice], before: KeyHash | None, after: KeyHash | None
) -> tuple[PartitionMoves, ...]:
    """The moves by which the rows of these slices get to where the hash `after` looks for them; `before` is the hash by
    which they are stored. None stands for an index that looks keys up, and finds them anywhere."""
    moves: list[PartitionMoves] = []
    for path, path_slices in groupby(sorted(slices, key=lambda s: (s.partition, s.file_id)), key=lambda s: s.partition):
        moves.append(_of_partition(path, list(path_slices), before, after))
    return tuple(moves)


def _of_partition(path: str, slices: list[FileSlice], before: KeyHash | None, after: KeyHash | None) -> PartitionMoves:
    if after is None:
        return PartitionMoves(path, kept=len(slices))
    if before is None:
        return PartitionMoves(path, shuffled=tuple(slices), why="the index so far has no buckets")
    old, new = before.in_partition(path), after.in_partition(path)
    if old == new:
        return PartitionMoves(path, kept=len(slices))
    moves, unmoved = _moves(path, slices, old, new)
    if moves is None:
        why = f"neither of {old.groups} and {new.groups} buckets divides the other"
        if old.fields != new.fields:
            why = "other key fields are hashed"
        return PartitionMoves(path, shuffled=tuple(slices), why=why)
    return PartitionMoves(path, tuple(moves), kept=unmoved, uneven=not new.is_even)


def _moves(path: str, slices: Iterable[FileSlice], old: KeyHash, new: KeyHash) -> tuple[list[Move] | None, int]:
    """The moves of one bucket to several, or of several to one, and the number of slices that stay. None for the moves
    if some rows move from several buckets to several."""
    merges: dict[int, list[FileSlice]] = {}
    moves: list[Move] = []
    unmoved = 0
    for file_slice in slices:
        number = bucket_of_file_id(file_slice.file_id)
        targets = None if number is None else old.spread(number, new)
        if number is None or not targets:
            return None, 0
        backs = [new.spread(target, old) for target in targets]
        if all(back == (number,) for back in backs):
            if targets == (number,):
                unmoved += 1
            else:
                moves.append(Move(path, (file_slice,), targets))
        elif len(targets) == 1 and all(old.spread(old_bucket, new) == targets for old_bucket in backs[0] or ()):
            merges.setdefault(targets[0], []).append(file_slice)
        else:
            return None, 0
    moves += [Move(path, tuple(merged_slices), (target,)) for target, merged_slices in sorted(merges.items())]
    return moves, unmoved
