"""The tables that an inspector shows: each is opened when a page needs it; damage is described on the page."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import TypeVar
from urllib.parse import quote, quote_plus

import lakebed
from lakebed.errors import CorruptFile, LakebedError
from lakebed.secrets import is_secret_of_storage, without_users
from lakebed.services.verify import RECORD_KEYS

T = TypeVar("T")
# Shorter values of storage options are no secrets, and would be found in every page.
_MIN_SECRET = 4
# A page lists so many differences of indexes.
_MAX_DIFFERENCES = 100
_WITHOUT_METADATA = {"hoodie.metadata.enable": False}


class UnknownPage(Exception):
    """The error for a page, a table or an instant that does not exist."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An object that could not be read: the error, its place, and the remedy."""

    title: str
    message: str
    hint: str = ""
    location: str = ""


def problem_of(error: Exception) -> Problem:
    """The problem that an error describes, for display."""
    if isinstance(error, LakebedError):
        title = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).capitalize()
        path = str(error.context.get("path") or "")
        offset = error.context.get("offset")
        return Problem(title, error.message, error.hint, f"{path} at byte {offset}" if offset is not None else path)
    if isinstance(error, FileNotFoundError):
        return Problem("File missing", str(error), "Reload the page: another process may have moved the file.")
    return Problem(
        "Unreadable", f"{type(error).__name__}: {error}", "Check the table with `lakebed indexes verify URI`."
    )


class InspectedTable:
    """One of the tables: `number` is its place in the addresses of pages.

    Pages about one table are made one after the other, as its views are shared by them.
    """

    def __init__(self, number: int, uri: str, storage_options: Mapping[str, str]) -> None:
        self.number = number
        self.uri = uri
        self.zone = "LOCAL"
        self.check = IndexCheck(self)
        self._options = dict(storage_options)
        self._secrets = _secrets_of(storage_options)
        self._lock = threading.RLock()
        self._table: lakebed.Table | None = None
        self._by_folders: lakebed.Table | None = None

    @property
    def title(self) -> str:
        """The URI without user names and passwords."""
        return without_users(self.uri)

    @property
    def label(self) -> str:
        """The last part of the URI."""
        return self.title.rstrip("/").rpartition("/")[2] or self.title

    @contextmanager
    def opened(self) -> Generator[lakebed.Table]:
        """The table, for one page at a time. Raises `TableNotFound`, `CorruptFile`, ..."""
        with self._lock:
            if self._table is None:
                self._table = self.open()
            yield self._table

    def open(self) -> lakebed.Table:
        """The table, opened for one reader alone."""
        return lakebed.open(self.uri, storage_options=self._options)

    def without_metadata(self, table: lakebed.Table, read: Callable[[lakebed.Table], T]) -> tuple[T, Problem | None]:
        """The result of `read` and None. If the metadata table is damaged, the folders are listed in its place, and the
        problem is returned with the result."""
        try:
            return read(table), None
        except CorruptFile as damage:
            if self._by_folders is None:
                self._by_folders = lakebed.open(self.uri, storage_options=self._options, options=_WITHOUT_METADATA)
            return read(self._by_folders), problem_of(damage)

    def redacted(self, page: str) -> str:
        """A page without the values of storage options that are secrets, and without user names in URIs."""
        for text in self._secrets:
            page = page.replace(text, "•••")
        return without_users(page)


def _secrets_of(storage_options: Mapping[str, str]) -> list[str]:
    """The values that no page may show, in each form that a page could have: in an address, in JSON, as text."""
    texts: list[str] = []
    for name, value in storage_options.items():
        if not is_secret_of_storage(name) or len(value) < _MIN_SECRET:
            continue
        for form in (quote_plus(value), quote(value), json.dumps(value, ensure_ascii=False)[1:-1], value):
            escaped = escape(form)
            # templates write quotes as numbers
            texts += [escaped, escaped.replace("&quot;", "&#34;").replace("&#x27;", "&#39;"), form]
    return texts


@dataclass
class IndexCheck:
    """The comparison of a table's indexes with its files, index by index in a thread: at most one runs at a time.

    `names` are the indexes to compare, `differences` those found so far, of `checked` ones.
    """

    table: InspectedTable
    is_running: bool = False
    names: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    differences: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    count: int = 0
    problem: Problem | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Begin the comparison, unless it is running."""
        with self._lock:
            if self.is_running:
                return
            self.is_running, self.names, self.checked, self.left_out = True, (), (), ()
            self.differences, self.count, self.problem = [], 0, None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            indexes = self.table.open().indexes
            self.names = (*(index.name for index in indexes.list()), RECORD_KEYS)
            for name in self.names:
                report = indexes.verify(name)
                self.count += report.differences.num_rows
                self.differences += report.differences.slice(0, _MAX_DIFFERENCES - len(self.differences)).to_pylist()
                self.left_out += report.left_out
                self.checked += (name,)
        except Exception as error:
            self.problem = problem_of(error)
        self.is_running = False
