"""The lock of a ZooKeeper ensemble, which real Hudi's writers share: nodes as Apache Curator's mutex makes them.

Each contender has a node of its own that is deleted with its session; the contender with the lowest number holds the
lock.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Generator
from importlib import import_module
from typing import Any

from lakebed.concurrency.heartbeat import this_process
from lakebed.concurrency.lock import LeasedLock
from lakebed.errors import StorageError, UnsupportedFeature
from lakebed.storage.base import refused

_DIGITS = 10
_SEPARATOR = "-lock-"
# Less than what the server grants: its clock may run a little faster.
_OF_THE_SESSION = 0.9


class ZooKeeperLock(LeasedLock):
    """The mutex at `path` of the ensemble `hosts` (`host:port,...`). Needs the package kazoo."""

    def __init__(
        self,
        hosts: str,
        path: str,
        *,
        session_seconds: float = 60.0,
        connection_seconds: float = 15.0,
        wait_seconds: float = 60.0,
    ) -> None:
        super().__init__(f"zookeeper://{hosts}{path}", wait_seconds)
        self._kazoo = import_kazoo("the ZooKeeper lock", "zookeeper")
        self._hosts = hosts
        self._path = path
        self._session_seconds = session_seconds
        self._connection_seconds = connection_seconds
        self._client: Any = None
        self._node = ""
        self._before: tuple[str, threading.Event] | None = None

    @property
    def validity(self) -> float:
        granted = getattr(self._client, "_session_timeout", None)  # in milliseconds, as the server has it
        return _OF_THE_SESSION * min(self._session_seconds, granted / 1000 if granted else self._session_seconds)

    def _try(self) -> bool:
        with self._reported():
            if self._client is None:
                self._begin()
            names = self._contenders()
            if self._node not in names:  # the session had ended, and the node with it
                raise refused(f"{self.where}: the session ended", url=self.where, retryable=True)
            return names[0] == self._node

    def _pause(self, seconds: float) -> None:
        """Wait until the node before this contender's node is deleted, or for `seconds`: until then this contender
        cannot get the lock."""
        try:
            names = self._contenders()
            at = names.index(self._node)
            if at == 0:
                return
            before = names[at - 1]
            if self._before is None or self._before[0] != before:
                deletion = threading.Event()
                if self._client.exists(f"{self._path}/{before}", watch=_sets(deletion)) is None:
                    return
                self._before = before, deletion
            if self._before[1].wait(seconds):
                self._before = None
        except Exception:  # the next try shows what is wrong
            time.sleep(seconds)

    def _begin(self) -> None:
        self._client = self._kazoo.client.KazooClient(
            hosts=self._hosts, timeout=self._session_seconds, connection_retry={"max_tries": 1}
        )
        self._client.start(timeout=self._connection_seconds)
        self._client.ensure_path(self._path)
        about = json.dumps(this_process().to_json()).encode()
        node = self._client.create(f"{self._path}/_c_{uuid.uuid4()}{_SEPARATOR}", about, ephemeral=True, sequence=True)
        self._node = node.rpartition("/")[2]

    def _contenders(self) -> list[str]:
        names: list[str] = self._client.get_children(self._path)
        return sorted((name for name in names if name[-_DIGITS:].isdigit()), key=lambda name: name[-_DIGITS:])

    def _prolong(self) -> bool:
        with self._reported(keep=True):
            return self._client.exists(f"{self._path}/{self._node}") is not None

    def _let_go(self) -> None:
        client, self._before = self._client, None
        if client is None:
            return
        # a node that is left is deleted with the session
        with contextlib.suppress(Exception):
            if self._node and client.connected:
                client.delete(f"{self._path}/{self._node}")
        with contextlib.suppress(Exception):
            client.stop()
            client.close()
        self._client, self._node = None, ""

    def _forget(self) -> None:
        super()._forget()
        self._client, self._node, self._before = None, "", None

    def _holder(self) -> str:
        with contextlib.suppress(Exception):
            first = self._contenders()[0]
            data, _ = self._client.get(f"{self._path}/{first}")
            return f"{first} ({data.decode(errors='replace')})"
        return super()._holder()

    @contextlib.contextmanager
    def _reported(self, *, keep: bool = False) -> Generator[None]:
        """Turn errors of the service into lakebed's. After an error the next call reconnects unless the connection is
        good."""
        try:
            yield
        except (self._kazoo.exceptions.KazooException, self._kazoo.handlers.threading.KazooTimeoutError, OSError) as e:
            if not keep:
                self._let_go()
            raise _unanswered(self.where, e) from e
        except StorageError:
            self._let_go()
            raise


def _sets(event: threading.Event) -> Any:
    return lambda _: event.set()


def _unanswered(where: str, error: BaseException) -> StorageError:
    return refused(
        f"the lock service does not answer: {where} ({type(error).__name__}: {error})",
        "see that ZooKeeper runs there and can be reached, then run it again; nothing of this write is visible",
        url=where,
        retryable=True,
    )


def import_kazoo(feature: str, extra: str) -> Any:
    """The package kazoo. Raises `UnsupportedFeature`, which names the extra that installs it."""
    try:
        kazoo: Any = import_module("kazoo")
        for part in ("client", "exceptions", "handlers.threading"):
            import_module(f"kazoo.{part}")
    except ImportError as error:
        raise UnsupportedFeature(
            f"{feature} needs the package kazoo", hint=f"pip install 'lakebed[{extra}]'"
        ) from error
    return kazoo
