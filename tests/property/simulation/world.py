"""A world in which everything that may go one way or another is drawn from a seed.

Actors are processes of their own: each has a clock on the wall, a name, and may die or stand still. They run one at a
time, as greenlets of this thread. At every call of storage, every look at a clock and every pause the world draws who
goes on, so that a run is a pure function of its seed. What is simulated is what lies below lakebed: storage (in
memory), time, chance and processes. The code of timeline, locks, heartbeats, markers, conflicts and rollback is the
real one.
"""

from __future__ import annotations

import random
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from lakebed.concurrency import heartbeat, lock
from lakebed.concurrency.heartbeat import ProcessIdentity
from lakebed.concurrency.process_queue import QueueEntry
from lakebed.format import row_addresses
from lakebed.format.sources import forget_written
from lakebed.metadata import expected_files, slices
from lakebed.operations import rollback
from lakebed.operations.recreate import forget_files
from lakebed.properties import file
from lakebed.slices import changed_rows, log_rows, placed_records, recorded_slices
from lakebed.storage import clocks, memory, parallel
from lakebed.storage.base import Durable, FileInfo, Versioned, refused
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed
from lakebed.timeline import history, instants, timeline

START = 1_800_000_000.0
# Longer than a lock and a heartbeat are valid.
LONG = 4000.0
_MAX_STEPS = 20_000


class Stuck(AssertionError):
    """A schedule that does not come to an end."""


@dataclass
class Actor:
    """One process: what it does, by whose clock, and when it dies."""

    name: str
    run: Callable[[], None]
    offset: float = 0.0
    set_back_at: int = 0
    dies_at: int = 0
    acts_before_death: bool = False
    freezes_at: int = 0
    dies_before: str = ""
    freezes_before: str = ""
    steps: int = 0
    wakes: float = 0.0
    dead: bool = False
    done: bool = False
    error: BaseException | None = None
    timers: list[Timer] = field(default_factory=list["Timer"])
    sights: OrderedDict[str, Any] = field(default_factory=OrderedDict[str, Any])
    greenlet: greenlet | None = None

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(f"host-{self.name}", "boot", "pid", 1, self.name)

    @property
    def lives(self) -> bool:
        return not (self.dead or self.done)


@dataclass
class Timer:
    """Stands for `PeriodicTask`: what a process does in the background, as long as it neither stands still nor is
    dead."""

    world: World
    seconds: float
    action: Callable[[], bool]
    due: float = 0.0
    actor: Actor | None = None

    def start(self) -> None:
        self.actor = self.world.current
        self.due = self.world.now + self.seconds
        if self.actor is not None:
            self.actor.timers.append(self)

    def stop(self) -> None:
        if self.actor is not None and self in self.actor.timers:
            self.actor.timers.remove(self)

    def run(self) -> None:
        self.due = self.world.now + self.seconds
        try:
            goes_on = self.action()
        except Exception:
            goes_on = True
        if not goes_on:
            self.stop()


class World:
    """The scheduler, and the time that all of it takes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        draw = self.random
        self.now = START
        # how long a step takes: where it is nothing, all instants want to be the same millisecond
        self.tick = draw.choice([0.0, 0.0001, 0.001, 0.004])
        # how likely the same actor goes on
        self.stays = draw.choice([0.0, 0.5, 0.8, 0.9, 0.95])
        self.doubts = draw.choice([0.0, 0.0, 0.0, 0.03])
        self.stamps = draw.random() < 0.5
        self.one_host = draw.random() < 0.3
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self.log: list[str] = []
        self.keeps_log = False
        self.steps = 0
        self.in_timer = False
        self.froze = False
        self._main: greenlet | None = None

    def run(self, actors: Sequence[Actor]) -> None:
        """Let the actors act until all are done or dead."""
        self.actors = list(actors)
        self._main = getcurrent()
        for actor in actors:
            actor.greenlet = greenlet(lambda a=actor: self._act(a), self._main)
        while any(actor.lives for actor in self.actors):
            chosen = self._choose(None)
            self.current = chosen
            assert chosen.greenlet is not None
            chosen.greenlet.switch()
        self.current = None

    def _act(self, actor: Actor) -> None:
        try:
            actor.run()
        except Killed:
            actor.dead = True
        except BaseException as error:
            actor.error = error
        actor.done = True

    def point(self, verb: str, path: str = "") -> None:
        """The current actor is about to do something that others may come before."""
        actor = self.current
        if actor is None or self.in_timer:
            return
        if actor.dead:
            raise Killed(actor.name)
        self.steps += 1
        actor.steps += 1
        self.now += self.tick
        if self.steps > _MAX_STEPS:
            raise Stuck(f"no end after {self.steps} steps, {actor.name} at {verb} {path}")
        if self.keeps_log:
            self.log.append(f"{self.now - START:10.3f} {actor.name}: {verb} {path}")
        if actor.steps == actor.set_back_at:
            actor.offset -= 7200.0
        if actor.steps == actor.dies_at or (actor.dies_before and re.fullmatch(actor.dies_before, f"{verb} {path}")):
            actor.dead = True
            if not actor.acts_before_death:
                raise Killed(f"{actor.name} at {verb} {path}")
            return
        if actor.steps == actor.freezes_at or (
            actor.freezes_before and re.fullmatch(actor.freezes_before, f"{verb} {path}")
        ):
            self.froze = True
            actor.freezes_before = ""
            self.pause(LONG)
            return
        if self.stays and self.random.random() < self.stays:
            return
        self._yield(actor)

    def pause(self, seconds: float) -> None:
        """The current actor does nothing for a while."""
        actor = self.current
        if actor is None or self.in_timer:
            self.now += seconds
            return
        if actor.dead:
            raise Killed(actor.name)
        actor.wakes = self.now + seconds
        if seconds < LONG:
            self._yield(actor)
            return
        timers, actor.timers = actor.timers, []  # with it stands all that it does in the background
        self._yield(actor)
        actor.timers = timers

    def _yield(self, actor: Actor) -> None:
        chosen = self._choose(actor)
        if chosen is actor:
            return
        self.current = chosen
        assert chosen.greenlet is not None
        chosen.greenlet.switch()
        if actor.dead:
            raise Killed(actor.name)

    def _choose(self, actor: Actor | None) -> Actor:
        living = [a for a in self.actors if a.lives]
        ready = [a for a in living if a.wakes <= self.now]
        if not ready:
            self._wait_until(min(a.wakes for a in living))
            ready = [a for a in living if a.wakes <= self.now]
        return ready[0] if len(ready) == 1 else self.random.choice(ready)

    def _wait_until(self, moment: float) -> None:
        while True:
            timers = [t for a in self.actors if a.lives for t in a.timers if t.due <= moment]
            if not timers:
                break
            timer = min(timers, key=lambda t: t.due)
            self.now = max(self.now, timer.due)
            before, self.current, self.in_timer = self.current, timer.actor, True
            try:
                timer.run()
            finally:
                self.current, self.in_timer = before, False
        self.now = max(self.now, moment)

    def wall(self) -> float:
        """What the clock on the wall of the current actor shows."""
        self.point("clock")
        return self.now + (self.current.offset if self.current else 0.0)

    def identity(self) -> ProcessIdentity:
        return self.current.identity if self.current else ProcessIdentity("host", "boot", "pid", 1, "main")

    def has_ended(self, other: ProcessIdentity) -> bool:
        """Whether a process is known to be dead: on one host by looking, elsewhere never."""
        return self.one_host and any(a.identity == other and not a.lives for a in self.actors)


class SimulatedStorage(MemoryStorage):
    """Memory where others may come in between any two calls, and where an answer may get lost."""

    world: World
    puts: list[str]

    def of(self, world: World) -> SimulatedStorage:
        self.world = world
        self.puts = []  # of files that must not be there before, in order
        self._objects = self._bucket.objects
        self._root = f"{self._prefix}/"
        return self

    def _found(self, prefix: str) -> Sequence[tuple[str, Any]]:
        start = f"{self._root}{prefix}/" if prefix else self._root
        cut = len(start)
        return sorted([(key[cut:], found) for key, found in self._objects.items() if key.startswith(start)])

    def _get(self, path: str) -> Any:
        found = self._objects.get(self._root + path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        self.world.point("list", prefix)
        folder = f"{prefix}/" if prefix else ""
        found = self._found(prefix)
        return iter([FileInfo(folder + n, len(o.data), o.modified) for n, o in found if recursive or "/" not in n])

    def list_names(self, prefix: str = "") -> Sequence[str]:
        self.world.point("list", prefix)
        return [name for name, _ in self._found(prefix) if "/" not in name]

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        self.world.point("list", prefix)
        return sorted({name.split("/", 1)[0] for name, _ in self._found(prefix) if "/" in name})

    def head(self, path: str) -> FileInfo | None:
        self.world.point("head", path)
        found = self._objects.get(self._root + path)
        return None if found is None else FileInfo(path, len(found.data), found.modified)

    def read(self, path: str) -> bytes:
        self.world.point("read", path)
        return self._get(path).data

    def read_versioned(self, path: str) -> Versioned:
        self.world.point("read", path)
        found = self._get(path)
        return Versioned(found.data, str(found.version))

    def _changes(self, verb: str, path: str, act: Callable[[], Any]) -> Any:
        world = self.world
        world.point(verb, path)
        actor = world.current
        doubtful = world.doubts and actor is not None and not world.in_timer and world.random.random() < world.doubts
        is_lost = doubtful and world.random.random() < 0.5
        done = None if is_lost else act()
        if actor is not None and actor.dead:
            raise Killed(f"{actor.name} after {verb} {path}")
        if doubtful:
            raise refused(f"no answer to {verb} {path}", url=path, retryable=True, doubtful=True)
        return done

    def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
        self._changes("write", path, lambda: self._put(self._root + path, data))

    def put_if_match(self, path: str, data: bytes, version: str | None, *, durable: bool = True) -> bool:
        def put() -> bool:
            found = self._objects.get(self._root + path)
            if version != (None if found is None else str(found.version)):
                return False
            if version is None:
                self.puts.append(path)
            self._put(self._root + path, data)
            return True

        return self._changes("put", path, put)

    def delete(self, path: str, *, durable: bool = True) -> bool:
        return self._changes("delete", path, lambda: self._objects.pop(self._root + path, None) is not None)

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        for name, _ in self._found(prefix):
            self.delete(f"{prefix}/{name}")


class _Sights:
    """What each process has seen for how long is its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of_main: OrderedDict[str, Any] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        actor = self._world.current
        return getattr(self._of_main if actor is None else actor.sights, name)

    def __setitem__(self, key: str, value: Any) -> None:
        self.__getattr__("__setitem__")(key, value)

    def __len__(self) -> int:
        return self.__getattr__("__len__")()


# Whoever asks for help with something does it all alone.
_NO_THREADS = SimpleNamespace(submit=lambda work: SimpleNamespace(cancel=lambda: True))


class Installed:
    """Puts a world below lakebed's modules, and takes it away again: one for many schedules, since that is dear."""

    def __init__(self) -> None:
        self.world = World(0)
        self.patch = pytest.MonkeyPatch()

    @contextmanager
    def here(self) -> Generator[Installed]:
        """The world is below lakebed's modules in the block. Every patch is undone, also where a later one fails."""
        try:
            self._install()
            yield self
        finally:
            self.patch.undo()

    def _install(self) -> None:
        patch = self.patch
        times = SimpleNamespace(
            time=lambda: self.world.wall(),
            monotonic=lambda: self.world.now,
            clock_gettime=lambda _: self.world.now,
            time_ns=lambda: int(self.world.now * 1e9),
            sleep=lambda seconds: self.world.pause(seconds),
        )
        for module in (instants, lock, memory, clocks, rollback, file):
            patch.setattr(module, "time", times)
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=self.world.random.getrandbits(128), version=4))
        for module in (heartbeat, lock):
            patch.setattr(module, "this_process", lambda: self.world.identity())
            patch.setattr(module, "is_this_process", lambda other: other == self.world.identity())
            patch.setattr(module, "has_ended", lambda other: self.world.has_ended(other))
        for module in (heartbeat, lock):
            patch.setattr(module, "PeriodicTask", lambda seconds, action, *_, **__: Timer(self.world, seconds, action))
        patch.setattr(QueueEntry, "take", lambda *_: True)  # by the one thread that a process has
        # a schedule orders everything that runs: no thread does
        patch.setattr(parallel, "_threads", lambda: _NO_THREADS)
        patch.setattr(
            lock.FileLock,
            # who waits for a dead one's lock polls seldom after a while: that changes nothing but what a schedule takes
            "_seconds_to_next_try",
            lambda _, waited, __: self.world.random.uniform(0.5, 1.5) * max(0.01, waited),
        )
        patch.setattr(heartbeat, "stamps_itself", lambda _: self.world.stamps)

    def begin(self, world: World) -> None:
        """From here on it is this world."""
        self.world = world
        # what a process has seen of others' heartbeats: each process of the world has its own
        self.patch.setattr(heartbeat, "_seen", _Sights(world))
        for kept in (heartbeat._ahead, lock._waited, lock._released, lock._looked_at, lock.holding, heartbeat._beating):
            kept.clear()
        # tables of two worlds have files of the same names, and some of the same sizes and times
        for cache in (timeline._BODIES, timeline._LISTED, timeline._SETTINGS, expected_files._WRITTEN):
            cache.clear()
        for cache in (recorded_slices._RECORDED, slices._BASES, row_addresses.FINGERPRINTS, log_rows.LOG_ROWS):
            cache.clear()
        for cache in (history._CLEANS, log_rows.REPLACEMENTS, changed_rows.KEY_TABLES, placed_records.PLACED):
            cache.clear()
        forget_files()
        forget_written()
