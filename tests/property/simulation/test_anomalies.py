"""What went wrong, or could have, in other implementations of Hudi's protocol, by name.

Each test runs schedules in which lakebed's own code holds, and then the same ones without the line that protects from
the anomaly: some of them must end in it, or the test would prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from lakebed.concurrency import conflicts
from lakebed.concurrency.lock import FileLock
from lakebed.operations import write_transaction
from lakebed.services import service
from lakebed.services.service import ServiceTransaction
from lakebed.storage.base import Durable, Storage
from lakebed.timeline import transitions
from lakebed.timeline.instants import InstantClock
from property.simulation.schedules import TABLES, History, Schedule, Table, tiny_rows
from property.simulation.tiny import TinyTable
from property.simulation.world import Actor, Installed

COW = ("cow", "simple", 9, False)
MOR = ("mor", "simple", 9, False)
MOR8 = ("mor", "bucket", 8, False)
ANY = TABLES
Broken = Callable[[pytest.MonkeyPatch], None]


class NoDeaths(Schedule):
    """Two writers that both live, on clocks that show the same: nothing but the order of their steps is drawn."""

    def _drawn(self, name: str, run: Callable[[], None]) -> Actor:
        return Actor(name, run)


class SameMillisecond(NoDeaths):
    """As if no time passed."""

    def run(self) -> None:
        self.world.tick = 0.0
        super().run()


class OneSlowClock(NoDeaths):
    """The clock of one of them is an hour behind."""

    def _drawn(self, name: str, run: Callable[[], None]) -> Actor:
        return Actor(name, run, offset=-3600.0 if name in ("w2", "s") else 0.0)


class TwoRunners(NoDeaths):
    """Two processes that run the same plan, which is there already."""

    def _actors(self) -> Iterator[Actor]:
        table = TinyTable(self.storage)
        for key in "ab":
            mark = f"before-{key}"
            table.upsert([key], mark)
            self.history.begin(mark, (key,)).is_done = True
        table.schedule()
        yield Actor("s1", self._compacts)
        yield Actor("s2", self._compacts)


class OneWriter(NoDeaths):
    """A writer beside two processes that compact: nobody else touches its files but they."""

    def _actors(self) -> Iterator[Actor]:
        yield Actor("w1", lambda: self._writes("w1"))
        yield Actor("s1", self._compacts)
        yield Actor("s2", self._compacts)

    def run(self) -> None:
        self.world.doubts = 0.0
        super().run()
        refused = [mark for mark, write in self.history.writes.items() if write.is_refused]
        assert not refused, f"refused beside services: {refused}"


class Frozen(Schedule):
    """One of the writers stands still for longer than its lock is valid."""

    def _drawn(self, name: str, run: Callable[[], None]) -> Actor:
        at = self.world.random.randint(10, 60)
        return Actor(name, run, freezes_at=at if name == "w1" else 0)


class CutOffRollback(Frozen):
    """A writer stands still as it puts its completed instant; who rolls it back dies before its requested one goes."""

    def run(self) -> None:
        self.world.stamps, self.world.doubts = True, 0.0
        super().run()

    def _drawn(self, name: str, run: Callable[[], None]) -> Actor:
        if name == "w1":
            return Actor(name, run, freezes_before=r"put .*[0-9]_[0-9]+\.(delta)?commit")
        return Actor(name, run, dies_before=r"delete .*timeline.*commit\.requested")


class PlannedMeanwhile(Frozen):
    """A writer stands still as it puts its completed instant; a compaction is planned and run that does not see it."""

    def run(self) -> None:
        self.world.stamps, self.world.doubts, self.world.one_host = False, 0.0, False
        super().run()

    def _actors(self) -> Iterator[Actor]:
        table = TinyTable(self.storage)
        for key in "ab":
            mark = f"before-{key}"
            table.upsert([key], mark)
            self.history.begin(mark, (key,)).is_done = True
        frozen = r"put .*[0-9]_[0-9]+\.deltacommit"
        yield Actor("w1", lambda: self._writes("w1"), freezes_before=frozen)

        def compacts() -> None:
            self.world.pause(100.0)
            self._compacts()

        yield Actor("s", compacts)


def asks_for_no_plans(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conflicts, "plan_without", lambda *_: None)
    patch.setattr(conflicts, "completed_before_publication", lambda *_: None)


def never_asks_for_rollbacks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conflicts, "is_rolled_back", lambda *_: False)


def no_order(patch: pytest.MonkeyPatch) -> None:
    """Instants are what the writer's own clock shows, whatever is on the timeline."""
    real = InstantClock.next
    patch.setattr(InstantClock, "next", lambda self, after=None: real(self))


def same_time_overwrites(patch: pytest.MonkeyPatch) -> None:
    """The same, and instant files are written over those that are there."""
    no_order(patch)

    def put(storage: Storage, path: str, data: bytes, *, durable: Durable = True) -> bool:
        storage.write(path, data)
        return True

    patch.setattr(transitions, "create_exactly_once", put)


def no_conflict_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_transaction, "check_conflicts", lambda attempt: attempt.schema)


def no_key_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_transaction, "check_unique", lambda *_: None)


def takes_all_for_dead(patch: pytest.MonkeyPatch) -> None:
    """Who takes up a plan asks neither whether it is being run nor, at the end, whether it still is his."""
    patch.setattr(service, "is_dead", lambda *_: True)
    # a rule is switched off, to show that schedules find what it prevents
    patch.setattr(ServiceTransaction, "_is_mine", lambda _: True)


def compactions_are_like_writes(patch: pytest.MonkeyPatch) -> None:
    """A compaction that completed meanwhile conflicts like any commit, whenever it was requested."""
    patch.setattr(conflicts, "COMPACT_OPERATION", "nothing is called so")
    patch.setattr(conflicts, "has_completion_times", lambda _: False)


def never_loses_its_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileLock, "lock_is_held", lambda _: True)


@pytest.mark.parametrize(
    ("kind", "tables", "broken", "ends_in"),
    [
        pytest.param(
            SameMillisecond,
            [COW],
            same_time_overwrites,
            "gone|missing|its commit wrote",
            id="vanlightly-overwritten-files",
        ),
        pytest.param(OneSlowClock, [COW], no_order, "gone", id="vanlightly-time-that-goes-back"),
        pytest.param(NoDeaths, [COW], no_conflict_check, "gone", id="vanlightly-no-concurrency-control"),
        pytest.param(NoDeaths, [COW, MOR], no_key_check, "comes twice", id="vanlightly-key-in-two-file-groups"),
        pytest.param(OneSlowClock, [MOR], no_order, "gone", id="hudi-7507-instant-behind-a-plan"),
        pytest.param(TwoRunners, [MOR], takes_all_for_dead, "missing|gone", id="hudi-7503-plan-run-by-two"),
        pytest.param(OneWriter, [MOR, MOR8], compactions_are_like_writes, "refused", id="services-fail-no-writer"),
        pytest.param(CutOffRollback, [COW, MOR], never_asks_for_rollbacks, "missing", id="rollback-that-was-cut-off"),
        pytest.param(PlannedMeanwhile, [MOR, MOR8], asks_for_no_plans, "gone", id="plan-that-misses-a-late-commit"),
        pytest.param(Frozen, ANY, never_loses_its_lock, "missing|shows on|gone|No such", id="lost-lease"),
    ],
)
def test_each_anomaly_of_other_implementations_is_met_and_harmless(
    kind: type[Schedule], tables: list[Table], broken: Broken, ends_in: str, installed: Installed
) -> None:
    """- Vanlightly, `Understanding Apache Hudi's consistency model`, parts 2 and 3: writers that take the same instant
      overwrite each other's completed instant and file slice (protects: `create_exactly_once` in
      `TimelineWriter._create`, and instants that go beyond the timeline's greatest one); an instant behind a committed
      one hides its own write (`InstantClock.next(after=...)` under the lock); without a check the second of two writers
      loses the first one's rows (`check_conflicts`); two writers that insert the same new key put it in two file groups
      (`check_unique`).
    - HUDI-7507: a writer whose instant, or whose completion, is behind that of a compaction plan made meanwhile: the
      compaction does not merge its log file, and readers look for it in the slice before (`InstantClock.next`).
    - HUDI-7503: a plan that two processes run at once: one takes back what the other is about to complete
      (`is_dead` in `ServiceTransaction.take_up`, `_is_mine` in `finish`).
    - A compaction makes no writer fail (`commits_since` leaves it out).
    - A writer that stands still until its lock is another one's (`FileLock.lock_is_held`), and publishes when
      that one has begun to roll it back and died (`publication.is_rolled_back`), or a compaction was planned
      that does not merge its log file (`publication.plan_without`).
    """
    for seed in range(60):
        kind(installed, seed, tables[seed % len(tables)]).run()
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        for seed in range(600):
            try:
                kind(installed, seed, tables[seed % len(tables)]).run()
            except Exception as error:
                found.append(str(error))
            if len(found) == 3:
                break
    assert found, "the anomaly is not found where nothing protects from it"
    assert any(re.search(ends_in, text) for text in found), found


def test_the_checker_finds_a_history_that_is_wrong() -> None:
    history = History()
    history.begin("w", ("a", "b")).is_done = True
    first = {"a": ["first"], "b": ["first"]}
    with pytest.raises(AssertionError, match="are gone"):
        history.check(first, ["w"])
    with pytest.raises(AssertionError, match=r"shows on \('a', 'b'\) but \['b'\]"):
        history.check({"a": ["first", "w"], "b": ["first"]}, [])
    with pytest.raises(AssertionError, match="twice"):
        history.check({"a": ["first", "w", "w"], "b": ["first", "w"]}, [])
    history.check({"a": ["first", "w"], "b": ["first", "w"]}, ["w"])
    with pytest.raises(AssertionError, match="a reader saw"):
        history.check(first, [])


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with Installed().here() as one, tiny_rows():
        yield one
