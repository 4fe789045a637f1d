"""Which locks a table's writers take: the lock file of the table, and before it that of a service if a job names
one; and the lease on a table's services.

The lock file of the table is always taken: so two jobs of lakebed exclude each other even if only one names the
service, and a writer keeps its table even if the service forgets it. Real Hudi's writers use the service. The lease
only keeps two processes from doing the same work: writers do not look at it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from lakebed.concurrency.lock import FileLock, Lock, default_lock
from lakebed.concurrency.running_call import surely
from lakebed.config.settings import LockSettings, WriteSettings
from lakebed.errors import InvalidOption, LockTimeout
from lakebed.model import HDFS_LOCK_FILE, HOODIE
from lakebed.storage import Storage

R = TypeVar("R")
_PREFIX = "hoodie.write.lock"


def table_lock(
    storage: Storage, settings: LockSettings, *, wait_seconds: float, table: str = ""
) -> FileLock | NestedLock:
    """The lock that a job's settings name; `table` is the table's name, the default key in lock services. Raises
    `InvalidOption` if a required setting is missing, and `UnsupportedFeature` without the service's package."""
    inner = default_lock(storage, wait_seconds=wait_seconds)
    outer = _of_service(storage, settings, wait_seconds, table) if settings.provider else None
    return inner if outer is None else NestedLock(outer, inner, wait_seconds)


def _of_service(storage: Storage, settings: LockSettings, wait_seconds: float, table: str) -> Lock | None:
    provider = settings.provider
    if provider == "FileSystemBasedLockProvider":
        if storage.spec.uri.startswith("hdfs://"):
            return None  # the table's own lock
        return FileLock(storage, HDFS_LOCK_FILE, wait_seconds=wait_seconds, release_deletes=True)
    if provider == "ZookeeperBasedLockProvider":
        from lakebed.concurrency.zookeeper import ZooKeeperLock

        url = _required(settings.zookeeper_url, "zookeeper.url", provider)
        base = _required(settings.zookeeper_base_path, "zookeeper.base_path", provider).rstrip("/")
        key = _required(settings.zookeeper_lock_key or table, "zookeeper.lock_key", provider)
        port = f":{settings.zookeeper_port}" if settings.zookeeper_port else ""
        hosts = ",".join(host if ":" in host else host + port for host in url.split(","))
        return ZooKeeperLock(
            hosts,
            f"{base}/{key}",
            session_seconds=settings.zookeeper_session_seconds,
            connection_seconds=settings.zookeeper_connection_seconds,
            wait_seconds=wait_seconds,
        )
    if provider == "DynamoDBBasedLockProvider":
        from lakebed.concurrency.dynamodb import DynamoDbLock

        return DynamoDbLock(
            _required(settings.dynamodb_table, "dynamodb.table", provider),
            _required(settings.dynamodb_partition_key or table, "dynamodb.partition_key", provider),
            region=settings.dynamodb_region or None,
            endpoint=settings.dynamodb_endpoint or None,
            billing=settings.dynamodb_billing,
            wait_seconds=wait_seconds,
        )
    if provider == "HiveMetastoreBasedLockProvider":
        from lakebed.concurrency.hive import HiveMetastoreLock

        return HiveMetastoreLock(
            _required(settings.hive_uris, "hivemetastore.uris", provider),
            _required(settings.hive_database, "hivemetastore.database", provider),
            _required(settings.hive_table or table, "hivemetastore.table", provider),
            wait_seconds=wait_seconds,
        )
    return None


def writers_lock(storage: Storage, settings: WriteSettings, table: str) -> FileLock | NestedLock:
    """The lock of writers with these settings, which wait for it as long as the settings say; see `table_lock`."""
    return table_lock(storage, settings.lock, wait_seconds=settings.lock_wait_seconds, table=table)


def _required(value: str, key: str, provider: str) -> str:
    if not value:
        raise InvalidOption(
            f"{_PREFIX}.provider={provider} needs {_PREFIX}.{key}",
            hint="give it as real Hudi's writers of the table do",
            context={"option": f"{_PREFIX}.{key}"},
        )
    return value


class NestedLock:
    """Two locks that are used as one, always taken in the same order."""

    def __init__(self, outer: Lock, inner: FileLock, wait_seconds: float) -> None:
        self._outer, self._inner, self._wait_seconds = outer, inner, wait_seconds
        self._is_wanted = False

    def acquire(self, timeout: float) -> None:
        self.acquire_reading(timeout, lambda: None)()

    def acquire_reading(self, timeout: float, read: Callable[[], R]) -> Callable[[], R]:
        """Acquire the outer lock, then the inner one, and run `read` meanwhile, from when the process has the outer
        lock. Returns a function that waits for the result of `read` and returns it, or raises its error."""
        if self._is_wanted:
            raise RuntimeError("the lock is held by this object already")
        deadline = time.monotonic() + timeout
        try:
            self._is_wanted = True
            self._outer.acquire(timeout)
            return self._inner.acquire_reading(max(0.0, deadline - time.monotonic()), read)
        except BaseException:
            surely(self._end)
            raise

    def renew(self) -> bool:
        return self._outer.renew() and self._inner.renew()

    def lock_is_held(self) -> bool:
        return self._outer.lock_is_held() and self._inner.lock_is_held()

    def release(self) -> None:
        surely(self._end)

    def _end(self) -> None:
        try:
            self._inner.release()
        finally:
            self._outer.release()
        self._is_wanted = False

    def __enter__(self) -> NestedLock:
        self.acquire(self._wait_seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


LEASE_FILE = f"{HOODIE}/.locks/services_lease.json"
# A dead process blocks its tables for this long if no other process can see that it has ended.
LEASE_SECONDS = 120.0
_RENEW_SECONDS = 30.0


class ServicesLease(FileLock):
    """A second lock of the table, for its services; no process waits for it."""

    outlives_calls = True

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, LEASE_FILE, wait_seconds=0.0, validity=LEASE_SECONDS, renew_every=_RENEW_SECONDS)

    def take(self) -> bool:
        """Take the lease if it is free, or was left by a process that died; returns whether it was taken."""
        try:
            self.acquire(0.0)
        except LockTimeout:
            return False
        return True

    def holder(self) -> str:
        """The holder of the lease as text for messages; empty if no process has it."""
        current = self._read()
        if current is None or current[0].expired:
            return ""
        return str(current[0].process or current[0])
