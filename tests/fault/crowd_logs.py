"""What the processes of a crowd say, line by line, and what a writer's rows may be by that."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Rows = dict[int, tuple[str, int]]
"""City and number of the call, by key."""


class Log:
    """Lines that are there even if the process is killed behind them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def say(self, what: str, **facts: Any) -> None:
        os.write(self._file, json.dumps({"what": what, **facts}).encode() + b"\n")

    @contextmanager
    def finding(self, where: str) -> Iterator[None]:
        """An error in the block is a finding."""
        try:
            yield
        except Exception:
            self.say("finding", text=f"{where}: {described()}")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [json.loads(line) for line in whole.splitlines()]


@dataclass(frozen=True)
class Change:
    """What a call does to the rows of its writer."""

    number: int
    put: Mapping[int, tuple[str, int]]
    gone: frozenset[int] = frozenset()
    erases: bool = False
    """Whether earlier versions of the rows go, too."""

    def apply(self, rows: Rows) -> Rows:
        return {key: row for key, row in rows.items() if key not in self.gone} | dict(self.put)

    @staticmethod
    def of(line: Mapping[str, Any]) -> Change:
        put = {int(key): (row[0], row[1]) for key, row in line["put"].items()}
        return Change(line["n"], put, frozenset(line["gone"]), line["verb"] == "erase")


@dataclass
class History:
    """The rows of one writer after each call that was done (`states`), the call that is under way or was killed
    (`open`), those that raised (`lost`), and the keys that an erasure was asked for: no view is sure to have them."""

    states: list[Rows] = field(default_factory=lambda: [{}])
    open: Change | None = None
    lost: list[Change] = field(default_factory=list[Change])
    erased: set[int] = field(default_factory=set[int])
    calls: int = 0
    instants: dict[int, str] = field(default_factory=dict[int, str])
    """Of the calls that were done, where it is known."""

    @staticmethod
    def read(path: Path) -> History:
        history = History()
        for line in Log.read(path):
            history.hear(line)
        return history

    def hear(self, line: Mapping[str, Any]) -> None:
        what = line["what"]
        if what == "begin":
            self.open, self.calls = Change.of(line), line["n"]
            if self.open.erases:
                self.erased |= self.open.gone
        elif what == "done" or (what == "settled" and line["happened"]):
            assert self.open is not None
            self.states.append(self.open.apply(self.states[-1]))
            if line.get("instant"):
                self.instants[self.open.number] = line["instant"]
            self.open = None
        elif what in ("raised", "settled"):
            assert self.open is not None
            self.lost.append(self.open)
            self.open = None

    def ends(self) -> list[Rows]:
        """What the rows may be now."""
        return [self.states[-1], *([self.open.apply(self.states[-1])] if self.open else [])]

    def since(self, earlier: History, *, lost: bool = False) -> list[Rows]:
        """What the rows may have been between an earlier look at the log and this one. With `lost` also with calls
        that raised, which are taken back then."""
        found = [*self.states[len(earlier.states) - 1 :]]
        if self.open is not None:
            found.append(self.open.apply(found[-1]))
        if lost:
            taken_back = self.lost[len(earlier.lost) :]
            found += [change.apply(rows) for change in taken_back for rows in tuple(found)]
        return found

    @staticmethod
    def difference(rows: Rows, expected: Rows) -> str:
        return (
            f"more {_text_of((k, rows[k]) for k in rows.keys() - expected.keys())}, "
            f"fewer {_text_of((k, expected[k]) for k in expected.keys() - rows.keys())}, "
            f"others {_text_of((k, rows[k], expected[k]) for k in rows.keys() & expected if rows[k] != expected[k])}"
        )


def _text_of(given: Iterable[Any]) -> str:
    return str(sorted(given)[:8])


def described() -> str:
    """The error that is being handled, and where it was raised."""
    error = sys.exc_info()[1]
    assert error is not None
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-6:]]
    return f"{type(error).__name__}: {error} [{' > '.join(places)}]"


class Warnings(logging.Handler):
    """What lakebed warns of is in the log, too."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        where = described() if sys.exc_info()[1] is not None else ""
        self._log.say("warning", text=f"{record.getMessage()} {where}".rstrip())
