"""A table's history as the states of its storage, each a copy of all files: one call of storage later a read may meet
any later state, as if other processes had done everything in between."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakebed.metadata_upkeep import maintain
from lakebed.metadata_upkeep.store import MetadataSettings
from lakebed.storage import memory
from support.storage_requests import before_requests

Files = Mapping[str, Any]


@contextmanager
def short_metadata_timelines() -> Generator[None]:
    """Cleaning and archival of the metadata table happen after few commits."""
    made = maintain.metadata_settings

    def short(settings: Any) -> MetadataSettings:
        found = made(settings)
        for name, value in {"clean_commits": 2, "archive_above": 4, "archive_down_to": 3}.items():
            object.__setattr__(found, name, value)
        return found

    maintain.metadata_settings = short
    try:
        yield
    finally:
        maintain.metadata_settings = made


@dataclass
class States:
    """The states of one table in memory, in order; `names` are what was done last before each."""

    uri: str
    names: list[str] = field(default_factory=list)
    files: list[Files] = field(default_factory=list)

    @classmethod
    def new(cls) -> States:
        """Of a table that is still to be created."""
        return cls(f"memory://states-{uuid.uuid4().hex}/t")

    @property
    def _objects(self) -> dict[str, Any]:
        return memory._buckets[self.uri.removeprefix("memory://").partition("/")[0]].objects

    def note(self, name: str) -> None:
        """Keep the state as it is now."""
        self.names.append(name)
        self.files.append({path: data for path, data in self._objects.items() if "/.locks/" not in path})

    def enter(self, number: int) -> None:
        """Make the state of this number that of the table."""
        objects = self._objects
        objects.clear()
        objects.update(self.files[number])


class Jumping:
    """Calls `do` right before the call of storage of this number, from 1 on; `names` are those until then."""

    def __init__(self, at: int, do: Callable[[], None]) -> None:
        self.at, self.do = at, do
        self.calls, self.call = 0, ""
        self.names: list[str] = []
        self._lock = threading.Lock()

    def before(self, call: str) -> None:
        with self._lock:
            self.calls += 1
            self.names.append(call)
            if self.calls == self.at:
                self.call = call
                self.do()


@contextmanager
def jumping(at: int, do: Callable[[], None]) -> Generator[Jumping]:
    """What opens a storage in the block meets `do` at its call of this number."""
    found = Jumping(at, do)
    with before_requests(lambda verb, path: found.before(f"{verb} {path}")):
        yield found
