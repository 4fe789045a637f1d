"""Plans and savepoints on a table's timeline that name what lies outside of the table: nothing there is deleted, read
or written, whether the names are paths upwards, absolute ones, links, or instants that are none."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import lakebed
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.errors import LakebedError
from lakebed.model import Action, Instant, State
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.bodies.plans import CleanPlan, clean_body
from lakebed.timeline.bodies.rollback import RollbackPlan, encode_restore_plan, encode_rollback_plan, encode_savepoint
from lakebed.timeline.transitions import TimelineWriter
from support.write_tables import rows

# Of a writer and of services that nobody lives to finish.
TARGET, LATER = "20200101000000000", "20200101000000001"
BASE, LOG = f"a-0_0-0-0_{TARGET}.parquet", f".a-0_{TARGET}.log.1_0-0-0"
OUTSIDE = ("../secret", "c0/../../secret", "{secret}", "linked", "linked/deep", "./../secret", "..")
QUIET = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}


@dataclass
class Place:
    """A table beside a folder that is none of its business."""

    uri: str
    secret: Path

    @property
    def writer(self) -> TimelineWriter:
        storage = open_storage(self.uri)
        return TimelineWriter(storage, load_table_config(storage))

    def pend(self, action: Action, instant: str, body: bytes = b"") -> None:
        """What a dead writer of this process leaves."""
        with Heartbeat(open_storage(self.uri), instant):
            self.writer.request(action, instant, body)
            self.writer.inflight(action, instant)

    def outside(self, folder: str) -> str:
        return folder.replace("{secret}", str(self.secret))

    def kept(self) -> dict[str, bytes]:
        folders = (self.secret.parent, self.secret, self.secret / "deep")
        return {str(path): path.read_bytes() for one in folders for path in one.iterdir() if path.is_file()}


@pytest.fixture(params=[6, 9])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    table = lakebed.create(
        str(tmp_path / "t"),
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        type="mor",
        table_version=request.param,
        properties=QUIET,
    )
    secret = tmp_path / "secret"
    (secret / "deep").mkdir(parents=True)
    for folder in (tmp_path, secret, secret / "deep"):
        for name in (BASE, LOG):
            (folder / name).write_bytes(b"theirs")
    for n in range(3):
        table.upsert(rows((n, "c0", "a", 1)))
    (tmp_path / "t" / "linked").symlink_to(secret)
    return Place(table.uri, secret)


def rollback_of_a_dead_writer(place: Place, folder: str) -> None:
    target = Instant(TARGET, Action.DELTACOMMIT, State.INFLIGHT)
    place.pend(target.action, TARGET)
    plan = RollbackPlan(target, (f"{folder}/{BASE}", f"{folder}/{LOG}"), {f"{folder}/{LOG}": 1})
    place.pend(Action.ROLLBACK, LATER, encode_rollback_plan("file:///", plan))


def rollback_of_no_instant(place: Place, folder: str) -> None:
    target = Instant(f"../{folder}", Action.DELTACOMMIT, State.INFLIGHT)
    plan = RollbackPlan(target, (f"{folder}/{BASE}",))
    place.pend(Action.ROLLBACK, LATER, encode_rollback_plan("file:///", plan))


def restore(place: Place, folder: str) -> None:
    """Its plan names the last commit, whose body has been given a file outside, and what is no instant."""
    storage = open_storage(place.uri)
    last = lakebed.open(place.uri).upsert(rows((9, "c0", "z", 2))).instant
    write = Instant(TARGET, Action.DELTACOMMIT, State.INFLIGHT)
    (marked,) = (i for i in lakebed.open(place.uri).timeline if i.time == last)
    assert marked.is_completed
    place.pend(write.action, TARGET)
    marker = f".hoodie/.temp/{TARGET}/{folder.strip('/')}/{BASE}.marker.MERGE"
    with suppress(LakebedError):  # such a marker cannot be made
        storage.write(marker, b"")
    storage.write(f".hoodie/.temp/{TARGET}/MARKERS0", f"{folder}/{BASE}.marker.CREATE\n".encode())
    none = Instant(f"../{folder}", Action.DELTACOMMIT, State.INFLIGHT)
    plan = encode_restore_plan([none, Instant(last, Action.DELTACOMMIT, State.INFLIGHT), write], folder)
    place.pend(Action.RESTORE, "20300101000000001", plan)


def savepoint(place: Place, folder: str) -> None:
    first = next(i.time for i in lakebed.open(place.uri).timeline if i.action is Action.DELTACOMMIT)
    body = encode_savepoint({folder: [BASE, f"../{BASE}"]}, user="../u", comment="", at_millis=0)
    place.writer.inflight(Action.SAVEPOINT, first)
    place.writer.complete(Action.SAVEPOINT, first, None, body)


def clean(place: Place, folder: str) -> None:
    plan = CleanPlan({folder: [BASE, LOG, f"../{BASE}"]}, partitions=(folder,))
    place.writer.request(Action.CLEAN, LATER, clean_body("file:///", plan).encode())


HOSTILE = (rollback_of_a_dead_writer, rollback_of_no_instant, restore, savepoint, clean)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: one.__name__)
@pytest.mark.parametrize("folder", OUTSIDE)
def test_nothing_outside_is_touched(hostile: Callable[[Place, str], None], folder: str, place: Place) -> None:
    before = place.kept()
    assert len(before) == 6
    hostile(place, place.outside(folder))
    table = lakebed.open(place.uri)
    deeds: tuple[Callable[[], object], ...] = (
        table.savepoints.list,
        lambda: table.scan().to_arrow(),
        lambda: lakebed.open(place.uri).restore(),
        lambda: lakebed.open(place.uri).upsert(rows((5, "c0", "b", 3))),
        lambda: lakebed.open(place.uri).maintenance.clean(options={"hoodie.clean.commits.retained": 1}),
        lambda: lakebed.open(place.uri).restore(table.savepoints.list()[0].instant),
        lambda: lakebed.open(place.uri).maintenance.repair(["orphans"]),
        lambda: lakebed.open(place.uri).maintenance.archive(
            options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
        ),
    )
    for deed in deeds:
        with suppress(LakebedError, IndexError):
            deed()
    assert place.kept() == before
    assert os.path.islink(Path(place.uri.removeprefix("file://"), "linked"))
    # the table itself goes on
    assert set(lakebed.open(place.uri).scan().to_arrow()["id"].to_pylist()) <= {0, 1, 2, 5, 9}


@pytest.mark.parametrize("plan", [rollback_of_a_dead_writer, clean], ids=lambda one: one.__name__)
def test_the_same_plans_are_carried_out_inside(plan: Callable[[Place, str], None], place: Place) -> None:
    inside = Path(place.uri.removeprefix("file://"), "c0", BASE)
    inside.write_bytes(b"ours")
    plan(place, "c0")
    lakebed.open(place.uri).upsert(rows((5, "c0", "b", 3)))
    lakebed.open(place.uri).maintenance.clean()
    assert not inside.exists()
