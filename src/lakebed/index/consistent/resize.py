"""Which buckets of a ring split and which merge, as the plan of a clustering; and where its rows go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.format.file_names import new_file_id
from lakebed.index.base import Resizes
from lakebed.index.consistent.ring import Children, Node, Ring, merge, neighbours, renewed, split
from lakebed.index.consistent.ring_hash import ring_hashes
from lakebed.model import FileGroupId, FileSlice
from lakebed.timeline.bodies.plans import ClusteringGroup, ClusteringOperation


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """When a bucket is too large or too small, in bytes of all its files, and how many a ring has at most and at
    least."""

    split_above: float
    merge_below: float
    most: int
    least: int


@dataclass(frozen=True)
class Outputs:
    """The file groups that the rows of a clustering group go to."""

    children: Children
    fields: tuple[str, ...]

    @property
    def file_ids(self) -> tuple[str, ...]:
        return tuple(node.file_id for node in self.children.alive)

    def of_keys(self, keys: pa.Array) -> pa.Array:
        """For each record key the number of its file group among `file_ids`."""
        return pa.array(self.children.places(ring_hashes(keys, self.fields)))


@dataclass
class PartitionResize:
    """Chooses the groups of one partition path. Buckets without files stay as they are: there is nothing to write."""

    ring: Ring
    slices: Mapping[int, FileSlice]
    sizes: BucketSizes
    instant: str
    rewrites_all: bool = False
    _taken: set[int] = field(default_factory=set[int])
    _added: int = 0
    _named: int = 0

    def groups(self) -> Iterator[ClusteringGroup]:
        """First what splits, then what merges; with `rewrites_all` what is left, each by itself."""
        for place in sorted(self.slices):
            yield from self._split(place)
        for place in sorted(self.slices, key=lambda at: (self.slices[at].size, at)):
            yield from self._merge(place)
        if self.rewrites_all:
            for place in sorted(self.slices.keys() - self._taken):
                yield self._group([place], renewed(self.ring, place, self._prefix()))

    @property
    def _count(self) -> int:
        return len(self.ring.nodes) + self._added

    def _split(self, place: int) -> Iterator[ClusteringGroup]:
        if self.slices[place].size <= self.sizes.split_above or self._count >= self.sizes.most:
            return
        children = split(self.ring, place, [self._prefix(), self._prefix()])
        if children is not None:
            self._added += 1
            yield self._group([place], children)

    def _merge(self, place: int) -> Iterator[ClusteringGroup]:
        """A small bucket with the small ones before it, then those behind it, as far as they fit together."""
        if not self._is_small(place):
            return
        chosen, total = [place], self.slices[place].size
        for at in (0, -1):
            while self._count - len(chosen) + 1 > self.sizes.least and len(chosen) < len(self.ring.nodes):
                following = neighbours(self.ring, chosen[at])[0 if at == 0 else 1]
                if following in chosen or not self._is_small(following):
                    break
                if total + self.slices[following].size > self.sizes.merge_below:
                    break
                total += self.slices[following].size
                chosen.insert(0 if at == 0 else len(chosen), following)
        if len(chosen) > 1:
            self._added -= len(chosen) - 1
            yield self._group(chosen, merge(self.ring, chosen, self._prefix()))

    def _is_small(self, place: int) -> bool:
        known = self.slices.get(place)
        return known is not None and place not in self._taken and known.size <= self.sizes.merge_below

    def _group(self, places: Sequence[int], nodes: tuple[Node, ...]) -> ClusteringGroup:
        self._taken.update(places)
        children = Children(self.ring.partition, self.ring.sequence, nodes)
        slices = tuple(self.slices[place] for place in places)
        return ClusteringGroup(slices, len(children.alive), children.to_metadata())

    def _prefix(self) -> str:
        self._named += 1
        return new_file_id(self.instant, self.ring.partition, self._named).removesuffix("-0")


def resize_groups(
    slices: Iterable[FileSlice],
    rings: Mapping[str, Ring],
    sizes: BucketSizes,
    instant: str,
    busy: Collection[FileGroupId],
    *,
    rewrites_all: bool,
) -> Iterator[ClusteringGroup]:
    """The groups of a clustering of these slices; partition paths with `busy` file groups are left alone."""
    places: dict[str, dict[int, FileSlice]] = {}
    waiting = {partition for partition, _ in busy}
    for one in slices:
        place = rings[one.partition].place_of(one.file_id)
        if place is not None and one.partition not in waiting:
            places.setdefault(one.partition, {})[place] = one
    for partition, known in places.items():
        yield from PartitionResize(rings[partition], known, sizes, instant, rewrites_all).groups()


def resizes_of(pending: Iterable[tuple[str, ClusteringOperation, Children]]) -> Resizes:
    """The file groups of pending resizes, with the instants of those."""
    parents: dict[FileGroupId, str] = {}
    children: dict[FileGroupId, str] = {}
    origins: dict[FileGroupId, tuple[FileGroupId, ...]] = {}
    for instant, operation, planned in pending:
        before = tuple((one.partition, one.file_id) for one in operation.slices)
        after = [(planned.partition, node.file_id) for node in planned.alive]
        parents.update((group, instant) for group in before)
        children.update((group, instant) for group in after)
        origins.update((group, before) for group in after)
    return Resizes(parents, children, origins)
