"""Which rows of a view an index that has layers covers: a vector index or a text index.

Each commit of a writer that knows the index leaves a witness in it, in the same commit of the metadata table. A commit
on the timeline without a witness is a gap: a writer that does not know the index made it. Its file groups are searched
exactly, until a writer that knows the index reads its rows and names it in a witness.

A witness also has a horizon: the index covers every commit that was requested before it. Where commits after all
horizons may be archived, nothing shows whether they have witnesses, so the index does not count.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakebed.errors import CorruptFile
from lakebed.format.text import parse_json_object
from lakebed.model import ALTER_OPERATION, CommitMetadata, FileGroupId, FileSlice, Instant
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS, Timeline

SERVICES: Final = ("CLUSTER", "COMPACT", "LOG_COMPACT")
"""The operations of commits that change no row, but may move it to another file group."""
REPAIR: Final = "+"
"""Stands between an instant and a number in the name of a layer that a repair wrote."""
NO_HORIZON: Final = "0"


@dataclass(frozen=True)
class Witness:
    """The commits that a layer covers, and its horizon."""

    instants: tuple[str, ...]
    horizon: str

    def to_bytes(self) -> bytes:
        return json.dumps({"horizon": self.horizon, "instants": self.instants}).encode()

    @classmethod
    def of(cls, data: bytes | memoryview) -> Witness:
        """The witness that these bytes are. Raises `CorruptFile` for others."""
        fields = parse_json_object(bytes(data))
        try:
            instants, horizon = fields["instants"], fields["horizon"]
            if not isinstance(horizon, str) or not all(isinstance(time, str) for time in instants):
                raise TypeError("its times are no texts")
        except (KeyError, TypeError) as cause:
            raise CorruptFile(
                f"a witness of an index is damaged: {cause}", hint="Drop the index and create it again."
            ) from cause
        return cls(tuple(instants), horizon)


@dataclass(frozen=True)
class Gap:
    """A commit without a witness, and the file groups that it wrote."""

    instant: str
    groups: frozenset[FileGroupId]


@dataclass(frozen=True)
class Coverage:
    """What an index covers of a view: `gaps` are the commits that it lacks, `groups` the file groups that may have
    their rows in the view. `reason` is why the index cannot be used for the view at all, None if it can."""

    gaps: tuple[Gap, ...] = ()
    groups: frozenset[FileGroupId] = frozenset()
    reason: str | None = None

    def lacking_slices(self, snapshot: Snapshot) -> list[FileSlice]:
        """The file slices of `groups` in the view."""
        slices = snapshot.file_slices({path for path, _ in self.groups})
        return [s for s in slices if (s.partition, s.file_id) in self.groups]


def coverage(snapshot: Snapshot, base: Witness, layers: Mapping[str, Witness]) -> Coverage:
    """What an index covers of a view, by the witness of its base and those of its layers by name. Layers of instants
    that are not in the view do not count."""
    if not all(map(snapshot.is_visible, base.instants)):
        return Coverage(reason="it was built or folded later than this view, or from commits that were taken back")
    visible = {of: witness for of, witness in layers.items() if snapshot.is_visible(instant_of_layer(of))}
    covered = {
        *base.instants,
        *map(instant_of_layer, visible),
        *(time for witness in visible.values() for time in witness.instants),
    }
    horizon = max([base.horizon, *(witness.horizon for witness in visible.values())])
    timeline = snapshot.timeline
    if (timeline.start or "") > horizon:
        return Coverage(reason="commits that it may not cover are archived")
    gaps: list[Gap] = []
    groups: set[FileGroupId] = set()
    for instant in timeline.commits_by_completion:
        is_covered = instant.time in covered
        if not snapshot.is_visible(instant.time) or (is_covered and not groups):
            continue
        body = timeline.commit_metadata(instant)
        operation = body.operation.upper()
        if not is_covered and operation == ALTER_OPERATION:
            return Coverage(reason=f"another writer changed the columns at {instant.time}")
        if not is_covered and operation not in SERVICES:
            gaps.append(Gap(instant.time, written_groups(body)))
            groups |= gaps[-1].groups
            continue
        # rows of a gap may be moved, also by a writer that knows the index
        replaced = {(path, file_id) for path, ids in body.replaced.items() for file_id in ids}
        if replaced & groups:
            groups |= written_groups(body)
    return Coverage(tuple(gaps), frozenset(groups))


def repair_layer(instant: str, number: int) -> str:
    """The name of the layer of a repair after this instant; `number` tells several of them apart."""
    return f"{instant}{REPAIR}{number:04d}"


def instant_of_layer(name: str) -> str:
    """The instant with which a layer counts.

    >>> instant_of_layer("20260101000000000"), instant_of_layer("20260101000000000+1")
    ('20260101000000000', '20260101000000000')
    """
    return name.partition(REPAIR)[0]


def written_groups(body: CommitMetadata) -> frozenset[FileGroupId]:
    """The file groups that a commit wrote."""
    return frozenset((path, stat.file_id) for path, stats in body.stats.items() for stat in stats)


def witness_of(timeline: Timeline, instant: str, covered: Collection[str], left: Iterable[Instant | str]) -> Witness:
    """The witness of a commit, with other commits that its layer covers. `left` are commits that the index still
    lacks."""
    pending = [i.time for i in timeline.pending if completes_as(i.action) in COMMITS and i.time != instant]
    lacking = [i if isinstance(i, str) else i.time for i in left]
    return Witness(tuple(sorted(covered)), min([instant, *pending, *lacking]))


def first_witness(timeline: Timeline) -> Witness:
    """The witness of a build from all completed commits of a timeline."""
    commits = [i.time for i in timeline.commits]
    pending = [i.time for i in timeline.pending if completes_as(i.action) in COMMITS]
    newest = max(commits, default=NO_HORIZON)
    return Witness(tuple(commits), min([newest, *pending]))
