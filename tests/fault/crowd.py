"""A crowd: writers, table services and readers that are processes of their own, on one table at the same time, while
some of them are killed and begun again, are interrupted as by Ctrl-C, or stand still for a while.

Each writer has keys of its own and a log of its calls, so that its rows are known at any time but for the call that is
under way. Whoever finds rows that no call explains, or meets an error that is not one of those to be expected, says so
in its log; `Crowd.findings` are these lines and what is wrong with the table at the end. The folder is copied where
there are any: `Crowd.copy` has the table, its timelines and the logs.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakebed
from fault.crowd_logs import History, Log, Rows, Warnings
from fault.crowd_roles import Reader, Role, Services, Task, Writer, rows_of, table_rows
from fault.crowd_tables import Shape
from lakebed.model import Action, Instant
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline
from support.published import expected_rows, read_deltalake, sorted_rows

_ROLES: dict[str, Callable[[Task], Role]] = {"writer": Writer, "services": Services, "reader": Reader}
_PROCESSES = multiprocessing.get_context("forkserver")  # they begin with everything imported
_PROCESSES.set_forkserver_preload(["lakebed", "pyarrow.parquet", "fault.crowd_roles"])
# Of the last write, and of a process that is told to end.
_TOO_LONG = 60.0
_PLANS_SECONDS = 5.0
_SHOWN = 12
# The one that writes last has a number that no writer has.
_LAST = 9
# What is warned of beside other processes.
_EXPECTED = ("is being run by another process", "has no record index yet")


@dataclass
class _Member:
    """A process of the crowd; `incarnation` counts those that were killed before it."""

    task: Task
    process: Any = None
    incarnation: int = 0
    goes_on_at: float | None = None

    def start(self) -> None:
        self.process = _PROCESSES.Process(target=_main, args=(self.task, self.incarnation), daemon=True)
        self.process.start()
        self.incarnation += 1

    @property
    def has_handler(self) -> bool:
        """Whether the process takes SIGINT as an interruption of its calls."""
        return _ready(self.task, self.incarnation - 1).exists()

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.goes_on_at = None


@dataclass
class Crowd:
    """Run it once, in a folder where nothing is yet."""

    folder: Path
    shape: Shape
    seconds: float
    writers: int = 3
    readers: int = 2
    strikes: list[str] = field(default_factory=list)
    copy: Path | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.uri = str(self.folder / "t")
        self.dice = random.Random(self.shape.seed)
        self.log = Log(self.folder / "crowd.log")

    def run(self) -> list[str]:
        """Everything that is wrong, as text."""
        self.shape.create(self.uri)
        roles = [*["writer"] * self.writers, "services", *["reader"] * self.readers]
        tasks = [Task(self.uri, self.folder, self.shape, role, n) for n, role in enumerate(roles)]
        self._run(list(map(_Member, tasks)))
        with self.log.finding("at the end"):
            self._check()
        self._save()
        return list(self.findings())

    def _save(self) -> None:
        """Copy the folder once there are findings: what runs on the table after that changes it."""
        if self.copy is None and any(self.findings()):
            self.copy = Path(tempfile.mkdtemp(prefix=f"crowd-{self.shape.seed}-"))
            shutil.copytree(self.folder, self.copy, dirs_exist_ok=True)

    def findings(self) -> Iterator[str]:
        for path in sorted(self.folder.glob("*.log")):
            for one in Log.read(path):
                is_expected = one["what"] != "warning" or any(words in one["text"] for words in _EXPECTED)
                if one["what"] == "finding" or not is_expected:
                    yield f"{path.stem}: {one['what']}: {one['text']}"
        for path in sorted(self.folder.glob("*.stacks")):
            if text := path.read_text().strip():
                yield f"{path.stem} {text}"

    def counts(self) -> dict[str, int]:
        """How often each thing was done, by role."""
        found: dict[str, int] = {}
        for path in sorted(self.folder.glob("*.log")):
            for one in Log.read(path):
                name = f"{path.stem.rstrip('0123456789')} {one['what']} {one.get('verb', one.get('type', ''))}".strip()
                found[name] = found.get(name, 0) + 1
        return found

    def _run(self, members: list[_Member]) -> None:
        try:
            _import_once()
            for member in members:
                member.start()
            while not all((self.folder / f"{member.task.name}.log").exists() for member in members):
                time.sleep(0.02)
            until = time.monotonic() + self.seconds
            (self.folder / "aside").write_text(str(until))
            (self.folder / "aside").rename(self.folder / "until")
            strike_at = time.monotonic() + self.dice.uniform(0.3, 1.5)
            while (now := time.monotonic()) < until:
                for member in members:
                    if member.goes_on_at is not None and member.goes_on_at <= now:
                        self._go_on(member)
                if now >= strike_at:
                    self._strike(self.dice.choice(members), now)
                    strike_at = now + self.dice.uniform(0.2, 2.0)
                time.sleep(0.02)
            for member in members:
                self._go_on(member)
            for member in members:
                self._ended(member)
        finally:
            for member in members:
                if member.process is not None:
                    member.kill()

    def _strike(self, member: _Member, now: float) -> None:
        name = member.task.name
        is_interrupted = self.dice.random() < 0.3 and member.has_handler
        if member.task.role != "reader" and member.goes_on_at is None and is_interrupted:
            member.signal(signal.SIGINT)
            self.log.say("interrupt", of=name)
        elif member.task.role != "reader" and self.dice.random() < 0.5:
            member.kill()
            self.log.say("kill", of=name)
            member.start()
        elif member.goes_on_at is None:
            member.signal(signal.SIGSTOP)
            self.log.say("stop", of=name)
            member.goes_on_at = now + self.dice.uniform(0.5, 3.0)

    def _go_on(self, member: _Member) -> None:
        member.goes_on_at = None
        member.signal(signal.SIGCONT)

    def _ended(self, member: _Member) -> None:
        member.process.join(_TOO_LONG)
        if member.process.is_alive():
            member.signal(signal.SIGUSR1)  # it writes its stacks
            time.sleep(0.5)
            self.log.say("finding", text=f"{member.task.name} does not end")
        elif member.process.exitcode:
            self.log.say("finding", text=f"{member.task.name} ended with {member.process.exitcode}")

    # -- the table at the end

    def _check(self) -> None:
        given = self._last_writes()
        self._whole("after the last write", given)
        self._save()
        self._run_plans()
        self._whole("after all services", given)

    def _run_plans(self) -> None:
        """Every service until none of their plans is left. The plan of one that was killed on another host is free once
        its heartbeat was seen to stand still."""
        since = time.monotonic()
        while True:
            self._run_services(lakebed.open(self.uri))
            left = self._pending()
            if not left:
                return
            if time.monotonic() > since + _PLANS_SECONDS:
                self.log.say("finding", text=f"still pending after all services: {left}")
                return
            time.sleep(0.2)

    def _run_services(self, table: lakebed.Table) -> None:
        table.maintenance.cluster(options=self.shape.options)
        if self.shape.kind == "mor":
            table.maintenance.compact(logs=True, options=self.shape.options)
            table.maintenance.compact(options=self.shape.options)
        table.maintenance.clean(options=self.shape.options)
        if table.indexes.waiting:
            table.indexes.build()

    def _pending(self) -> list[Instant]:
        storage = open_storage(self.uri)
        return list(load_timeline(storage, load_table_config(storage)).pending)

    def _last_writes(self) -> Rows:
        """Write until nothing of the dead is pending; gives what was written."""
        task = Task(self.uri, self.folder, self.shape, "writer", _LAST)
        since, n, given, left = time.monotonic(), 0, Rows(), list[Instant]()
        while True:
            n += 1
            given |= {task.key(k): (f"own{_LAST}", n) for k in (2, 5)}
            with suppress(lakebed.CommitConflict):
                lakebed.open(self.uri).upsert(rows_of(_LAST, given), options=self.shape.options)
                left = self._left_by_dead()
                if not left:
                    return given
            if time.monotonic() > since + _TOO_LONG:
                self.log.say("finding", text=f"still pending: {left}")
                return given
            time.sleep(0.2)

    def _left_by_dead(self) -> list[Instant]:
        """What is pending and no plan of a service, which waits until that is run."""
        storage = open_storage(self.uri)
        timeline = load_timeline(storage, load_table_config(storage))
        plans = (Action.COMPACTION, Action.LOGCOMPACTION, Action.INDEXING, Action.CLEAN)
        return [i for i in timeline.pending if i.action not in plans and not timeline.is_pending_clustering(i)]

    def _whole(self, when: str, last: Rows) -> None:
        with self.log.finding(when):
            table = lakebed.open(self.uri)
            folders = lakebed.open(self.uri, options={"hoodie.metadata.enable": False})
            views = {
                "metadata table": table_rows(table.scan()),
                "folders": table_rows(folders.scan()),
                "get": table_rows(table.get([Task.key_of(w, k) for w in range(_LAST + 1) for k in range(Task.KEYS)])),
            }
            for number in range(self.writers):
                history = History.read(self.folder / f"writer{number}.log")
                expected = history.ends()
                for name, rows in views.items():
                    if rows.get(number, {}) not in expected:
                        difference = History.difference(rows.get(number, {}), expected[0])
                        self.log.say("finding", text=f"{when}: {name} has other rows of writer {number}: {difference}")
            for name, rows in views.items():
                if rows.get(_LAST, {}) != last:
                    self.log.say("finding", text=f"{when}: {name} lacks the last write: {rows.get(_LAST)} {last}")
            verified = table.indexes.verify()
            if not verified.ok:
                self.log.say("finding", text=f"{when}: verify: {verified}")
            self._published(when, table)
            repaired = table.maintenance.repair(dry_run=True)
            if not repaired.ok:
                self.log.say("finding", text=f"{when}: repair: {repaired}")

    def _published(self, when: str, table: lakebed.Table) -> None:
        """A published list has the rows of the base files, where a key that has moved may be twice."""
        if not self.shape.is_published:
            return
        with suppress(lakebed.UnsupportedFeature):
            table.catalogs.publish("delta")
            stored = expected_rows(table)
            listed = sorted_rows(read_deltalake(self.uri))
            if listed != stored:
                self.log.say("finding", text=f"{when}: the Delta list has {listed}, the base files {stored}")


def _import_once() -> None:
    """What the processes are made of, in the one that they are forked from: it looks in `PYTHONPATH` alone."""
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*([given] if given else []), str(Path(__file__).parents[1])])
    try:
        first = _PROCESSES.Process(target=_nothing)
        first.start()
        first.join()
    finally:
        os.environ.pop("PYTHONPATH")
        if given is not None:
            os.environ["PYTHONPATH"] = given


def _ready(task: Task, incarnation: int) -> Path:
    return task.folder / f"{task.name}-{incarnation}.ready"


def _nothing() -> None:
    pass


def _main(task: Task, incarnation: int) -> None:
    import faulthandler

    with (task.folder / f"{task.name}.stacks").open("a") as stacks:
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
        task.shape.settle_in(f"{task.name}-{incarnation}")
        role = _ROLES[task.role](task)
        signal.signal(signal.SIGINT, role.interrupt)
        _ready(task, incarnation).touch()
        logging.getLogger("lakebed").addHandler(Warnings(role.log))
        role.dice.seed(f"{task.shape.seed} {task.name} {incarnation}")
        with role.log.finding("outside of its calls"):
            role.begin()
            until = task.until()
            while time.monotonic() < until:
                role.step()


def first_findings(findings: list[str]) -> str:
    """The first findings."""
    more = len(findings) - _SHOWN
    return "\n".join([*(one[:3000] for one in findings[:_SHOWN]), *([f"and {more} more"] if more > 0 else [])])
