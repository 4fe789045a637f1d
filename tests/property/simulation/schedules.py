"""One schedule: actors drawn from a seed, run, and what must be true of the table afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from lakebed.concurrency.heartbeat import HEARTBEAT_FOLDER
from lakebed.concurrency.markers import TEMP_FOLDER
from lakebed.errors import CommitConflict, CommitStateUnknown, LakebedError
from lakebed.model import Action, State
from lakebed.operations import uniqueness
from lakebed.storage.memory import MemoryStorage, _Bucket, _buckets
from lakebed.timeline.bodies.rollback import rollback_target
from lakebed.timeline.instants import parse_instant_file
from lakebed.timeline.timeline import Timeline, load_timeline
from property.simulation.tiny import KEYS, Marks, TinyTable, inserted_keys, prepared, stored_keys
from property.simulation.world import LONG, Actor, Installed, SimulatedStorage, Stuck, World

Table = tuple[str, str, int, bool]
"""Kind, index, version, and whether there is a metadata table."""
TABLES: tuple[Table, ...] = (
    ("cow", "simple", 9, False),
    ("cow", "bucket", 9, False),
    ("mor", "simple", 9, False),
    ("mor", "bucket", 9, False),
    ("mor", "simple", 8, False),
    ("cow", "simple", 6, False),
)
WITH_METADATA: tuple[Table, ...] = (("cow", "simple", 9, True), ("mor", "simple", 9, True), ("cow", "bucket", 6, True))
CLOCKS = (0.0, 0.0, 5.0, -5.0, 3600.0, -3600.0)
_ATTEMPTS = 2


@dataclass
class Write:
    """What became of a write that was tried."""

    mark: str
    keys: tuple[str, ...]
    is_done: bool = False
    is_refused: bool = False


@dataclass
class History:
    """What the actors of a schedule saw and did."""

    writes: dict[str, Write] = field(default_factory=dict[str, Write])
    seen: set[str] = field(default_factory=set[str])

    def begin(self, mark: str, keys: tuple[str, ...]) -> Write:
        write = self.writes[mark] = Write(mark, keys)
        return write

    def check(self, marks: Marks, done_before: Sequence[str], *, at_end: bool = False) -> None:
        """A reader sees whole writes, each once, all that were acknowledged before and all that it saw before."""
        found = {mark for of_key in marks.values() for mark in of_key}
        for key, of_key in marks.items():
            assert len(of_key) == len(set(of_key)), f"key {key} has a mark twice: {of_key}"
        for mark in sorted(found - {"first"}):
            write = self.writes[mark]
            half = [key for key in write.keys if mark not in marks.get(key, ())]
            assert not half, f"write {mark} shows on {write.keys} but {half}"
            assert not write.is_refused or not at_end, f"write {mark} was refused and is there"
        lost = [mark for mark in done_before if mark not in found]
        assert not lost, f"acknowledged writes {lost} are gone: {marks}"
        vanished = [mark for mark in sorted(self.seen - found) if not self.writes[mark].is_refused]
        assert not vanished, f"a reader saw {vanished}, which are gone: {marks}"
        assert all("first" in marks.get(key, ()) for key in KEYS), f"the first rows are gone: {marks}"
        self.seen |= found - {"first"}

    @property
    def done(self) -> list[str]:
        return [mark for mark, write in self.writes.items() if write.is_done]


class Schedule:
    """Two writers, a service and a reader on one small table, as a seed has them."""

    def __init__(
        self, installed: Installed, seed: int, table: Table, *, services: int = 1, keeps_log: bool = False
    ) -> None:
        self.seed, self.table, self.services = seed, table, services
        installed.begin(World(0))
        objects = prepared(*table)
        self.world = World(seed)
        self.world.keeps_log = keeps_log
        installed.begin(self.world)
        self.history = History()
        self._bucket = f"schedule-{seed}"
        _buckets[self._bucket] = _Bucket(objects=dict(objects))
        self.storage = SimulatedStorage(self._bucket, "t").of(self.world)

    def run(self) -> None:
        """Run it, and check what must be true. Raises `AssertionError`."""
        try:
            actors = list(self._actors())
            self.world.run(actors)
            for actor in actors:
                if isinstance(actor.error, AssertionError | Stuck):
                    raise actor.error
                known = actor.error is None or isinstance(actor.error, LakebedError)
                assert known, f"{actor.name} ended in {actor.error!r}"
            self._settle()
            self._check_table()
        finally:
            MemoryStorage.drop(self._bucket)

    def _actors(self) -> Iterator[Actor]:
        draw = self.world.random
        yield self._drawn("w1", lambda: self._writes("w1"))
        yield self._drawn("w2", lambda: self._writes("w2"))
        if self.table[0] == "mor":
            yield self._drawn("s", self._compacts)
            if draw.random() < (1.0 if self.services > 1 else 0.2):
                yield self._drawn("s2", self._compacts)
        elif draw.random() < 0.2:
            yield self._drawn("w3", lambda: self._writes("w3"))
        if draw.random() < 0.3:
            yield Actor("r", self._reads)

    def _drawn(self, name: str, run: Callable[[], None]) -> Actor:
        draw = self.world.random
        actor = Actor(name, run, offset=draw.choice(CLOCKS))
        if draw.random() < 0.2:
            actor.set_back_at = draw.randint(1, 90)
        fate = draw.random()
        if fate < 0.2:
            actor.dies_at = draw.randint(1, 90)
            actor.acts_before_death = draw.random() < 0.5
        elif fate < 0.3:
            actor.freezes_at = draw.randint(1, 90)
        return actor

    def _writes(self, name: str) -> None:
        draw = self.world.random
        for number in range(draw.choice([1, 1, 1, 2])):
            keys = tuple(sorted(draw.sample([*KEYS, "c"], draw.choice([1, 1, 2]))))
            for attempt in range(_ATTEMPTS):
                write = self.history.begin(f"{name}-{number}-{attempt}", keys)
                try:
                    TinyTable(self.storage).upsert(keys, write.mark)
                    write.is_done = True
                    break
                except CommitStateUnknown:
                    break
                except CommitConflict:
                    write.is_refused = True

    def _compacts(self) -> None:
        table = TinyTable(self.storage)
        for _ in range(self.world.random.choice([1, 1, 2])):
            if not table.pending_compactions():
                table.schedule()
            for instant in table.pending_compactions():
                try:
                    table.compact(instant)
                except CommitConflict:
                    continue

    def _reads(self) -> None:
        for _ in range(2):
            done = self.history.done
            self.history.check(TinyTable(self.storage).read(), done)
            self.world.pause(self.world.random.choice([0.0, 0.05, 0.2]))

    def _settle(self) -> None:
        """Where something is left behind: long afterwards another process writes. It takes the dead for dead, whom it
        sees unchanged for long, rolls back what they left, and runs plans again."""
        world = self.world
        world.doubts = 0.0

        def later() -> None:
            table = TinyTable(self.storage)
            for number in range(3):
                if not self._leftovers():
                    return
                world.pause(LONG - 1)
                write = self.history.begin(f"later-{number}", ("a",))
                table.upsert(["a"], write.mark)
                write.is_done = True
                for instant in table.pending_compactions():
                    with suppress(CommitConflict):  # its runner is not known to be dead yet
                        table.compact(instant)

        actor = Actor("later", later)
        world.run([actor])
        if actor.error is not None:
            raise actor.error

    def _leftovers(self) -> list[str]:
        """What a table at rest has not: pending instants, markers, heartbeats, files that no commit names."""
        config = TinyTable(self.storage).config
        timeline = load_timeline(self.storage, config)
        found = [str(i) for i in timeline.pending]
        found += [*self.storage.list_names(HEARTBEAT_FOLDER), *self.storage.list_folders(TEMP_FOLDER)]
        named = self._named(timeline)
        files = {info.path for info in self.storage.list() if not info.path.startswith(".hoodie")}
        assert named <= files, f"missing: {named - files}"
        return found + sorted(files - named - {".hoodie_partition_metadata"})

    @staticmethod
    def _named(timeline: Timeline) -> set[str]:
        """The files of completed commits, but for those that a pending rollback is about to undo."""
        plans = [timeline.plan(i) for i in timeline.pending if i.action is Action.ROLLBACK]
        undone = {rollback_target(plan) for plan in plans}
        stats = [
            s for i in timeline.commits if i.time not in undone for s in timeline.commit_metadata(i).stats.values()
        ]
        return {path for group in stats for stat in group for path in stat.paths}

    def _check_table(self) -> None:
        table = TinyTable(self.storage)
        marks = table.read()
        self.history.check(marks, self.history.done, at_end=True)
        timeline = load_timeline(self.storage, table.config)
        self._check_instants([i for i in timeline.instants if i.state is State.COMPLETED])
        if self.table[3]:
            listed = table.snapshot(use_metadata=False).file_slices()
            told = table.snapshot().file_slices()
            assert told == listed, f"the metadata table shows {told}, the folders {listed}"
        left = self._leftovers()
        assert not left, f"left behind: {left}"

    def _check_instants(self, completed: Sequence[object]) -> None:
        """Times are unique, and those that stand appeared in the order of their times."""
        version = self.table[2]
        stands = {i.file_name: i for i in completed}  # type: ignore[attr-defined]
        names = dict.fromkeys(path.rpartition("/")[2] for path in self.storage.puts)
        parsed = [parse_instant_file(name, version) for name in names if name in stands]
        if version >= 8:
            ends = [i.completion_time for i in parsed if i is not None]
            # a writer that stood still may publish what was the time before
            if not self.world.froze:
                assert len(set(ends)) == len(ends), f"completion times come twice: {ends}"
                assert ends == sorted(ends), f"completion times do not ascend: {ends}"
        requested = [i.time for i in stands.values()]
        assert len(set(requested)) == len(requested), f"instants come twice: {requested}"


@contextmanager
def tiny_rows() -> Iterator[None]:
    """The comparison of inserted keys reads tiny files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uniqueness, "stored_rows", stored_keys)
        patch.setattr(uniqueness, "group_changes", inserted_keys)
        patch.setattr(uniqueness, "added_keys", lambda changes: changes.keys)
        yield
