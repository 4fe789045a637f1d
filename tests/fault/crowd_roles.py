"""The processes of a crowd: a writer, one that runs table services, a reader. Each has a log."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

import lakebed
from fault.crowd_logs import Change, History, Log, Rows, described
from fault.crowd_tables import HASHED, SCHEMA, Shape
from lakebed.errors import (
    CommitConflict,
    CommitStateUnknown,
    ErasureIncomplete,
    InvalidOption,
    LakebedError,
    LockTimeout,
    SchemaConflict,
    UnsupportedFeature,
)
from lakebed.table import Table
from lakebed.timeline.timeline import completed_at

_LOST = (CommitConflict, LockTimeout)
_CITIES = ("c0", "c1")


@dataclass(frozen=True)
class Task:
    """What a process is to be, on which table."""

    KEYS: ClassVar[int] = 40

    uri: str
    folder: Path
    shape: Shape
    role: str
    number: int

    def until(self) -> float:
        """When it is to end, known when all are ready."""
        while not (self.folder / "until").exists():
            time.sleep(0.02)
        return float((self.folder / "until").read_text())

    @property
    def name(self) -> str:
        return f"{self.role}{self.number}"

    def key(self, k: int) -> int:
        return self.key_of(self.number, k)

    @staticmethod
    def key_of(number: int, k: int) -> int:
        return 1_000 * number + k

    @property
    def own_city(self) -> str:
        return f"own{self.number}"

    def city(self, k: int) -> str:
        return self.own_city if k % 3 == 2 else _CITIES[k % 3]


def rows_of(writer: int, given: Mapping[int, tuple[str, int]]) -> pa.Table:
    rows = [
        {"id": key, "city": city, "w": writer, "n": n, "v": f"{writer}-{n % 4}", "ts": n}
        for key, (city, n) in given.items()
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def table_rows(found: Any) -> dict[int, Rows]:
    """The rows of each writer. Raises `AssertionError` for keys that are there twice, or values that nobody wrote."""
    rows = (found if isinstance(found, pa.Table) else found.to_arrow()).select(SCHEMA.names).to_pylist()
    writers: dict[int, Rows] = {}
    for row in rows:
        key, w, n = row["id"], row["w"], row["n"]
        assert (w, row["v"], row["ts"]) == (key // 1_000, f"{w}-{n % 4}", n), f"nobody wrote {row}"
        mine = writers.setdefault(w, {})
        assert key not in mine, f"key {key} is there twice: {[r for r in rows if r['id'] == key]}"
        mine[key] = (row["city"], n)
    return writers


def without(rows: Rows, keys: set[int]) -> Rows:
    return {key: row for key, row in rows.items() if key not in keys}


class Role:
    """What all have: a log, dice and the table. SIGINT interrupts their calls of lakebed and nothing else."""

    is_calling = False

    def __init__(self, task: Task) -> None:
        self.task, self.shape = task, task.shape
        self.dice = random.Random()
        self.log = Log(task.folder / f"{task.name}.log")
        self.options = task.shape.options

    def begin(self) -> None:
        """Before the first step."""

    def step(self) -> None:
        raise NotImplementedError

    def open(self) -> Table:
        return lakebed.open(self.task.uri)

    def interrupt(self, _number: int, _frame: object) -> None:
        """The handler of SIGINT."""
        if self.is_calling:
            raise KeyboardInterrupt

    def called(self, call: Callable[[], Any]) -> Any:
        """What a call gives that SIGINT may interrupt."""
        self.is_calling = True
        try:
            return call()
        finally:
            self.is_calling = False

    def try_to(self, verb: str, call: Callable[[], Any], *expected: type[LakebedError]) -> Any:
        """What a call gives; None where it raised what is to be expected, or was interrupted. Any other error is a
        finding."""
        try:
            found = self.called(call)
        except expected as error:
            self.log.say("refused", verb=verb, type=type(error).__name__, text=str(error))
            return None
        except KeyboardInterrupt:
            self.log.say("interrupted", verb=verb)
            return None
        except Exception:
            self.log.say("finding", text=f"{verb}: {described()}")
            return None
        self.log.say("did", verb=verb)
        return found


class Writer(Role):
    """Writes its keys, and looks what became of them."""

    def begin(self) -> None:
        self.history = History.read(self.log.path)
        if self.history.open is None:
            return
        found = self._own_rows()
        if found not in self.history.ends():
            self._wrong("after it was killed", found, self.history.ends())
        self._say("settled", n=self.history.open.number, happened=found != self.history.states[-1])

    def step(self) -> None:
        verb, change, call = self._drawn(self.history.calls + 1)
        put = {str(key): row for key, row in change.put.items()}
        self._say("begin", n=change.number, verb=verb, put=put, gone=sorted(change.gone))
        refusals = (*_LOST, InvalidOption) if verb == "erase" else _LOST  # a savepoint has the rows
        try:
            result = self.called(call)
        except refusals as error:
            self._say("raised", n=change.number, type=type(error).__name__, text=str(error))
        except (CommitStateUnknown, ErasureIncomplete) as error:
            self.log.say("refused", verb=verb, type=type(error).__name__, text=str(error))
            self.begin()
        except KeyboardInterrupt:
            self.log.say("interrupted", verb=verb)
            self.begin()
        except Exception:
            self.log.say("finding", text=f"{verb} {change.number}: {described()}")
            self.begin()
        else:
            self._say("done", n=change.number, instant=str(getattr(result, "instant", "")))
        if self.dice.random() < 0.4:
            found = self._own_rows()
            if found not in self.history.ends():
                self._wrong(f"after {verb} {change.number}", found, self.history.ends())

    def _say(self, what: str, **facts: Any) -> None:
        self.log.say(what, **facts)
        self.history.hear({"what": what, **facts})

    def _wrong(self, when: str, found: Rows, expected: list[Rows]) -> None:
        self.log.say("finding", text=f"rows {when}: {History.difference(found, expected[0])} of {len(expected)}")

    def _own_rows(self) -> Rows:
        number = self.task.number
        how = self.dice.choice(["scan", "filter", "get"])
        for _ in range(3):
            table = self.open()
            if how == "get":
                keys = [self.task.key(k) for k in range(Task.KEYS)]
                found = self.try_to(how, lambda: table_rows(table.get(keys)))  # noqa: B023
            else:
                condition = f"w = {number}" if how == "filter" else None
                found = self.try_to(how, lambda: table_rows(table.scan(where=condition)))  # noqa: B023
            if found is not None:
                return found.get(number, {})
        raise AssertionError("no read succeeds")  # three interrupts in a row are no chance

    def _drawn(self, n: int) -> tuple[str, Change, Callable[[], object]]:
        """A write: its verb, what it does to the rows, its call."""
        state, dice, table = self.history.states[-1], self.dice, self.open()
        retries, options = dice.choice([0, 3, 8]), self.options
        verbs = ["upsert"] * 4 + ["delete"] * 2 + ["delete where", "update", "merge", "merge"]
        if self.shape.erases:
            verbs += ["erase"]
        fresh = [k for k in range(Task.KEYS) if self.task.key(k) not in state]
        if fresh:
            verbs += ["insert", "insert", "bulk_insert"]
        if self.shape.is_partitioned:
            verbs += ["insert_overwrite"]
            if any(city == self.task.own_city for city, _ in state.values()):
                verbs += ["delete_partitions"]
        verb = dice.choice(verbs)
        own = frozenset(key for key, (city, _) in state.items() if city == self.task.own_city)
        if verb in ("delete", "erase"):
            keys = [self.task.key(k) for k in dice.sample(range(Task.KEYS), dice.randint(1, 6))]
            change = Change(n, {}, frozenset(keys), verb == "erase")
            if verb == "erase":
                return verb, change, lambda: table.erase(keys, options=options)
            return verb, change, lambda: table.delete(keys, retries=retries, options=options)
        if verb in ("delete where", "update"):
            low, high = sorted(dice.choices(range(1, n), k=2)) if n > 1 else (0, 0)
            among = {key: (city, n) for key, (city, number) in state.items() if low <= number <= high}
            condition = f"w = {self.task.number} and n >= {low} and n <= {high}"
            if verb == "update":
                values = {"n": f"{n}", "ts": f"{n}", "v": f"'{self.task.number}-{n % 4}'"}
                return (
                    verb,
                    Change(n, among),
                    lambda: table.update(values, where=condition, retries=retries, options=options),
                )
            gone = frozenset(among)
            return verb, Change(n, {}, gone), lambda: table.delete(where=condition, retries=retries, options=options)
        if verb == "delete_partitions":
            return (
                verb,
                Change(n, {}, own),
                lambda: table.delete_partitions([self.task.own_city], retries=retries, options=options),
            )
        if verb == "insert_overwrite":
            numbers = [k for k in dice.sample(range(Task.KEYS), 12) if k % 3 == 2] or [2]
            put = {self.task.key(k): (self.task.own_city, n) for k in numbers}
            data = rows_of(self.task.number, put)
            return verb, Change(n, put, own), lambda: table.insert_overwrite(data, retries=retries, options=options)
        among = fresh if verb in ("insert", "bulk_insert") else range(Task.KEYS)
        put = {self.task.key(k): (self._city(k), n) for k in dice.sample(among, min(len(among), dice.randint(1, 8)))}
        data = rows_of(self.task.number, put)
        if verb == "merge":
            on = ["id", "city"] if self.shape.is_partitioned and not self.shape.moves else "id"
            merge = table.merge(data, on).when_matched_update().when_not_matched_insert()
            return verb, Change(n, put), lambda: merge.execute(retries=retries, options=options)
        return verb, Change(n, put), lambda: getattr(table, verb)(data, retries=retries, options=options)

    def _city(self, k: int) -> str:
        """Keys have their city for good, but for those that may move."""
        return self.dice.choice(_CITIES) if self.shape.moves and k % 3 < 2 else self.task.city(k)


class Services(Role):
    """Runs table services, those that the table may have."""

    def begin(self) -> None:
        shape = self.shape
        has_metadata = shape.properties["hoodie.metadata.enable"]
        self.verbs = ["clean", "archive", "cluster", "plan cluster", "savepoint", "merge_small_files", "configure"]
        if shape.kind == "mor":
            self.verbs += ["compact", "compact", "plan compact", "compact_logs"]
        if shape.index == "bucket":
            self.verbs += ["rescale"]
        if has_metadata:
            self.verbs += ["index", "index", "drop index"]
            if shape.index in ("record", "record_level_index"):
                self.verbs += ["reshard"]
        if shape.changes_columns:
            self.verbs += ["add column", "drop column", "comment"]
        if shape.is_published:
            self.verbs += ["publish", "publish"]
        if not shape.is_elsewhere:
            self.verbs += ["run_services"]
            if has_metadata and shape.version > 6:
                self.verbs += ["build index", "build index"]

    def step(self) -> None:
        verb = self.dice.choice(self.verbs)
        table = self.open()
        self.log.say("begin", verb=verb)
        calls: dict[str, Callable[[], Any]] = {
            "clean": lambda: table.maintenance.clean(options=self.options),
            "archive": lambda: table.maintenance.archive(options=self.options),
            "compact": lambda: table.maintenance.compact(options=self.options),
            "plan compact": lambda: table.maintenance.compact(plan_only=True, options=self.options),
            "compact_logs": lambda: table.maintenance.compact(logs=True, options=self.options),
            "cluster": lambda: self._cluster(table, plan_only=False),
            "plan cluster": lambda: self._cluster(table, plan_only=True),
            "merge_small_files": lambda: table.maintenance.merge_small_files(options=self.options),
            "savepoint": lambda: self._savepoint(table),
            "configure": lambda: table.configure(
                {"hoodie.metadata.compact.max.delta.commits": self.dice.choice([2, 5])}
            ),
            "rescale": lambda: table.maintenance.rescale(self.dice.choice([1, 2, 3, 4]), options=self.options),
            "reshard": lambda: table.indexes.reshard("record_index", self.dice.choice([1, 2, 3])),
            "index": lambda: table.indexes.create(self._index()),
            "drop index": lambda: table.indexes.drop(self._index()),
            "build index": lambda: (table.indexes.create(self._index(), wait=False), table.indexes.build()),
            "add column": lambda: table.columns.add(self._column(), "int", options=self.options),
            "drop column": lambda: table.columns.drop(self._column(), options=self.options),
            "comment": lambda: table.columns.comment("v", f"at {time.time()}", options=self.options),
            "publish": lambda: table.catalogs.publish(self.dice.choice(["delta", "iceberg"]), options=self.options),
            "run_services": lambda: self._run_services(table),
        }
        # an index or a column that is there or is not, a service or a list that this table does not take
        self.try_to(verb, calls[verb], *_LOST, InvalidOption, SchemaConflict, UnsupportedFeature)

    def _column(self) -> str:
        return self.dice.choice(["extra", "other"])

    def _index(self) -> str:
        names = ["bloom_filters", "column_stats", "partition_stats"]
        if self.shape.version > 6 and self.shape.index == "record":
            names.append("v")
        return self.dice.choice(names)

    def _cluster(self, table: Table, *, plan_only: bool) -> Any:
        if self.shape.index == "consistent":
            sizes = {"hoodie.bucket.index.max.num.buckets": 8, "hoodie.bucket.index.min.num.buckets": 1}
            more = {"hoodie.parquet.max.file.size": self.dice.choice([1_500, 4_000]), **sizes}
            return table.maintenance.cluster(plan_only=plan_only, options={**self.options, **more})
        if self.shape.index in HASHED:
            return table.maintenance.cluster(["v"], options=self.options)
        return table.maintenance.cluster(self.dice.choice([None, ["v"]]), plan_only=plan_only, options=self.options)

    def _savepoint(self, table: Table) -> None:
        there = table.savepoints.list()
        if len(there) > 1 or (there and self.dice.random() < 0.7):
            table.savepoints.delete(self.dice.choice(there).instant)
        elif any(i.is_completed for i in table.timeline):
            table.savepoints.create()

    def _run_services(self, table: Table) -> None:
        for event in lakebed.maintenance.run(table.uri, once=True):
            if event.kind == "failed" and "by another process" not in str(event):
                raise AssertionError(f"{event.service}: {event}")


@dataclass
class Feed:
    """How far a reader of changes is, and what the writers had done when it read last."""

    began: dict[int, History]
    checkpoint: str = "000"


class Reader(Role):
    """Looks at the table in every way; what it sees must be what the writers' logs say."""

    def begin(self) -> None:
        self.feeds = {name: Feed(self._histories()) for name in ("changes", "consumer")}
        self.cdc_checkpoint, self.images, self.is_whole = "000", dict[int, Any](), True
        self.past: dict[str, dict[int, Rows]] = {}

    def step(self) -> None:
        ways = [self._scan, self._scan, self._get, self._filter, self._changes, self._as_of, self._as_of, self._count]
        if self.shape.has_cdc:
            ways += [self._cdc, self._cdc]
        if self.shape.is_consumed:
            ways += [self._consume, self._consume]
        way = self.dice.choice(ways)
        with self.log.finding(way.__name__):
            way()

    def _histories(self) -> dict[int, History]:
        paths = self.task.folder.glob("writer*.log")
        return {int(path.stem.removeprefix("writer")): History.read(path) for path in sorted(paths)}

    def _look(self, verb: str, look: Callable[[], Any], keys: Mapping[int, list[int]] | None = None) -> None:
        """What a look at the latest rows shows, of these keys of some writers, is what some moment of it has."""
        before = self._histories()
        found = self.try_to(verb, lambda: table_rows(look()))
        if found is None:
            return
        after = self._histories()
        for number in set(after) if keys is None else set(keys):
            allowed = after[number].since(before.get(number, History()), lost=self.shape.is_elsewhere)
            if keys is not None:
                asked = {Task.key_of(number, k) for k in keys[number]}
                allowed = [{key: row for key, row in rows.items() if key in asked} for rows in allowed]
            rows = found.get(number, {})
            if rows not in allowed:
                differences = [History.difference(rows, one) for one in (allowed[0], allowed[-1])]
                text = f"{verb}: rows of writer {number} are none of {len(allowed)}: {differences}"
                self.log.say("finding", text=text)

    def _scan(self) -> None:
        self._look("scan", lambda: self.open().scan())

    def _filter(self) -> None:
        number = self.dice.choice(sorted(self._histories()) or [0])
        everything = {number: list(range(Task.KEYS))}
        self._look("filter", lambda: self.open().scan(where=f"w = {number}"), everything)

    def _get(self) -> None:
        number = self.dice.choice(sorted(self._histories()) or [0])
        some = self.dice.sample(range(Task.KEYS), self.dice.choice([1, 3, 20]))
        self._look("get", lambda: self.open().get([Task.key_of(number, k) for k in some]), {number: some})

    def _count(self) -> None:
        scan = self.open().scan()
        seen = [scan.snapshot]
        counted = self.try_to("count", lambda: (scan.count(), scan.to_arrow().num_rows))
        seen.append(scan.snapshot)
        if counted is not None and counted[0] != counted[1] and seen[0] is seen[1]:
            self.log.say("finding", text=f"count: {counted[0]} rows, and {counted[1]} are there")

    def _changes(self) -> None:
        self._feed("changes", self._changed, self._now)

    def _consume(self) -> None:
        consumer = self.task.name
        self._feed("consumer", self._consumed, lambda: str(self.open().consumers.move(consumer, "latest").position))

    def _feed(self, name: str, read: Callable[[], tuple[dict[int, Rows], str]], skip: Callable[[], str]) -> None:
        """Everything that was written between two reads of a feed is there, unless it was written again."""
        feed = self.feeds[name]
        before, began = self._histories(), feed.began
        result = self.try_to(name, read, InvalidOption)
        if result is None:
            # cleaned: go on from now
            feed.checkpoint = skip()
            feed.began = self._histories()
            return
        found, end = result
        self.log.say(name, start=feed.checkpoint, end=end)
        feed.checkpoint = end
        after = self._histories()
        feed.began = after
        for number, history in before.items():
            known = began.get(number, History())
            missing = [
                (key, row)
                for key, row in history.states[-1].items()
                if row[1] > known.calls
                # on version 6 a range ends before the first action that is pending
                and (self.shape.version > 6 or history.instants.get(row[1], "9") <= end)
                and found.get(number, {}).get(key) != row
                and after[number].states[-1].get(key) == row
                and not (after[number].open and key in {*after[number].open.put, *after[number].open.gone})
                and not any(key in {*one.put, *one.gone} for one in after[number].lost[len(history.lost) :])
            ]
            if missing:
                self.log.say("finding", text=f"{name} of writer {number} lack {missing[:8]}")

    def _changed(self) -> tuple[dict[int, Rows], str]:
        changes = self.open().changes(self.feeds["changes"].checkpoint)
        return table_rows(changes.to_arrow()), changes.end

    def _consumed(self) -> tuple[dict[int, Rows], str]:
        with self.open().consume(self.task.name, options=self.options) as batch:
            return table_rows(batch.to_arrow()), batch.end

    def _now(self) -> str:
        return max((completed_at(i) for i in self.open().timeline if i.is_completed), default="000")

    def _as_of(self) -> None:
        table = self.open()
        instants = list(table.timeline)
        done = [i for i in instants if i.is_completed and str(i.action) in ("commit", "deltacommit", "replacecommit")]
        if not done:
            return
        known = [i.time for i in done if i.time in self.past]
        time = self.dice.choice(known) if known and self.dice.random() < 0.6 else self.dice.choice(done[-4:]).time
        found = self.try_to("as_of", lambda: table_rows(table.scan(as_of=time)), InvalidOption)
        if found is None:
            return
        histories = self._histories()
        for number, history in histories.items():
            rows, erased = without(found.get(number, {}), history.erased), history.erased
            allowed = [without(state, erased) for state in (*history.states, *history.ends())]
            if rows not in allowed and not self.shape.is_elsewhere:
                text = f"as_of {time}: rows of writer {number} were never so: {rows}"
                self.log.say("finding", text=text)
        erased = {key for history in histories.values() for key in history.erased}
        if time in self.past:
            was, now = (
                {number: left for number, rows in one.items() if (left := without(rows, erased))}
                for one in (self.past[time], found)
            )
            if was != now:
                self.log.say("finding", text=f"as_of {time} was {was} and is {now}")
        if not any(not i.is_completed and i.time < time for i in instants):
            self.past.setdefault(time, found)

    def _cdc(self) -> None:
        def read() -> tuple[list[dict[str, Any]], str]:
            changes = self.open().cdc(self.cdc_checkpoint)
            return changes.to_arrow().to_pylist(), changes.end

        result = self.try_to("cdc", read, InvalidOption)
        if result is None:
            self.cdc_checkpoint, self.images, self.is_whole = self._now(), {}, False
            return
        rows, end = result
        self.log.say("images", start=self.cdc_checkpoint, end=end, instants=sorted({row["ts_ms"] for row in rows}))
        self.cdc_checkpoint = end
        erased = {key for history in self._histories().values() for key in history.erased}
        for row in _moves_as_updates(rows):
            before, after = _written(row["before"]), _written(row["after"])
            image = after or before
            assert image is not None, f"a change without images: {row}"
            key = image["id"]
            known = self.images.get(key)
            if (self.is_whole or key in self.images) and before != known and key not in erased:
                self.log.say("finding", text=f"cdc {row['ts_ms']} of {key}: {row} comes after {known}")
            self.images[key] = after


def _written(image: dict[str, Any] | None) -> dict[str, Any] | None:
    """An image without the columns that come and go."""
    return image and {name: image[name] for name in SCHEMA.names}


def _moves_as_updates(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A key that moves is a delete in one partition and an insert in another one."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: str(row["ts_ms"])):
        at = str(row["ts_ms"]), (row["after"] or row["before"])["id"]
        other = found.get(at)
        if other is not None and {other["op"], row["op"]} == {"i", "d"}:
            row = {
                **row,
                "op": "u",
                "before": other["before"] or row["before"],
                "after": other["after"] or row["after"],
            }
            del found[at]
        assert at not in found, f"cdc tells twice of {at}: {other} {row}"
        found[at] = row
    return list(found.values())
