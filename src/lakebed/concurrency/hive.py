"""The lock of a Hive metastore, which real Hudi's writers share: an exclusive lock on a table of the metastore, which
need not exist there.

The metastore grants it for `hive.txn.timeout` from the last heartbeat, and asks waiting clients to check again.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Generator
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from lakebed.concurrency.heartbeat import this_process
from lakebed.concurrency.lock import LeasedLock
from lakebed.errors import StorageError, UnsupportedFeature
from lakebed.storage.base import refused

_PORT = 9083
_TIMEOUT, _DEFAULT_SECONDS = "hive.txn.timeout", 300.0
_LENGTH_OF_TIME = re.compile(r"(\d+)\s*(ms|msec|s|sec|m|min|)")
_UNITS = {"ms": 0.001, "msec": 0.001, "m": 60.0, "min": 60.0}
# Less than what the metastore grants: its clock may run a little faster.
_OF_THE_TIMEOUT = 0.9


class HiveMetastoreLock(LeasedLock):
    """The lock on the table `table` of `database`, in the metastore at `uris` (`thrift://host:port,...`, of which the
    first that answers is taken). Needs the package pymetastore."""

    # The metastore keeps a queue, so the pauses stay short: while the next one in it pauses, no writer has the lock.
    pauses = (0.05, 0.2)

    def __init__(
        self, uris: str, database: str, table: str, *, connection_seconds: float = 15.0, wait_seconds: float = 60.0
    ) -> None:
        super().__init__(f"{uris.partition(',')[0]}/{database}.{table}", wait_seconds)
        self._hive = MetastoreClient(uris, connection_seconds, "the lock of a Hive metastore")
        self._lock_seconds = _DEFAULT_SECONDS
        self._database, self._table = database, table
        self._id: int | None = None

    @property
    def validity(self) -> float:
        return _OF_THE_TIMEOUT * self._lock_seconds

    def _try(self) -> bool:
        types = self._hive.types
        with self._reported():
            client = self._hive.connected()
            if self._id is None:
                self._lock_seconds = _seconds(client.get_config_value(_TIMEOUT, f"{_DEFAULT_SECONDS:g}s"))
                part = types.LockComponent(
                    type=types.LockType.EXCLUSIVE,
                    level=types.LockLevel.TABLE,
                    dbname=self._database,
                    tablename=self._table,
                    operationType=types.DataOperationType.NO_TXN,
                )
                me = this_process()
                answer = client.lock(
                    types.LockRequest(component=[part], user=f"process {me.pid}", hostname=me.host, agentInfo="lakebed")
                )
                self._id = answer.lockid
            else:
                try:
                    answer = client.check_lock(types.CheckLockRequest(lockid=self._id))
                except types.NoSuchLockException:
                    self._id = None  # it waited for longer than the metastore keeps those that wait
                    return False
        return answer.state == types.LockState.ACQUIRED

    def _prolong(self) -> bool:
        types = self._hive.types
        with self._reported(keep=True):
            try:
                self._hive.connected().heartbeat(types.HeartbeatRequest(lockid=self._id))
            except (types.NoSuchLockException, types.NoSuchTxnException, types.TxnAbortedException):
                return False
        return True

    def _let_go(self) -> None:
        if self._id is not None:
            # a lock that is not given back expires
            with contextlib.suppress(Exception):
                self._hive.connected().unlock(self._hive.types.UnlockRequest(lockid=self._id))
            self._id = None
        self._hive.close()

    def _forget(self) -> None:
        super()._forget()
        self._id = None
        self._hive.forget()

    def _holder(self) -> str:
        types = self._hive.types
        with contextlib.suppress(Exception):
            request = types.ShowLocksRequest(dbname=self._database, tablename=self._table)
            for lock in self._hive.connected().show_locks(request).locks:
                if lock.state == types.LockState.ACQUIRED:
                    return f"{lock.user} on {lock.hostname} ({lock.agentInfo})"
        return super()._holder()

    @contextlib.contextmanager
    def _reported(self, *, keep: bool = False) -> Generator[None]:
        """Turn errors of the service into lakebed's. After an error the next call reconnects unless the connection is
        good."""
        try:
            yield
        except (self._hive.errors, OSError) as error:
            if keep:
                self._hive.close()  # the lock itself stays until it runs out
            else:
                self._let_go()
            raise _unanswered(self.where, error) from error


class MetastoreClient:
    """A connection to the metastore at `uris`, opened at first use. A request takes at most `seconds`. Errors about the
    missing package name the feature `purpose`."""

    def __init__(self, uris: str, seconds: float, purpose: str) -> None:
        self.types, self._service, self._thrift = _packages(purpose)
        self.errors: type[Exception] = self._thrift["Thrift"].TException
        self.addresses = [_address(uri) for uri in uris.split(",") if uri.strip()]
        self._seconds = seconds
        self._open: tuple[Any, Any] | None = None

    def connected(self) -> Any:
        """The client of an open connection, to the first address that answers."""
        if self._open is None:
            self._open = self._first_that_answers()
        return self._open[0]

    def close(self) -> None:
        """Close the connection; the next request connects again."""
        if self._open is not None:
            with contextlib.suppress(Exception):
                self._open[1].close()
            self._open = None

    def forget(self) -> None:
        """Leave the connection to the process that this one was forked from; the next request connects again."""
        self._open = None

    def _first_that_answers(self) -> tuple[Any, Any]:
        failure: Exception | None = None
        for host, port in self.addresses:
            socket = self._thrift["transport.TSocket"].TSocket(host, port)
            socket.setTimeout(self._seconds * 1000)
            transport = self._thrift["transport.TTransport"].TBufferedTransport(socket)
            try:
                transport.open()
            except (self.errors, OSError) as error:
                failure = error
                continue
            protocol = self._thrift["protocol.TBinaryProtocol"].TBinaryProtocol(transport)
            return self._service.Client(protocol), transport
        raise failure or OSError("no address is given")


def _address(uri: str) -> tuple[str, int]:
    parts = urlsplit(uri.strip() if "//" in uri else f"thrift://{uri.strip()}")
    return parts.hostname or "localhost", parts.port or _PORT


def _seconds(text: str) -> float:
    """The seconds in a duration as Hive writes it: `300s`, `300000ms`, or a bare number of seconds.

    >>> _seconds("300s"), _seconds("1500 ms"), _seconds("20")
    (300.0, 1.5, 20.0)
    """
    match = _LENGTH_OF_TIME.fullmatch(text.strip().lower())
    return int(match[1]) * _UNITS.get(match[2], 1.0) if match else _DEFAULT_SECONDS


def _unanswered(where: str, error: BaseException) -> StorageError:
    return refused(
        f"the lock service does not answer: {where} ({type(error).__name__}: {error})",
        "see that the Hive metastore runs there, can be reached and has its tables of locks, then run it again;"
        " nothing of this write is visible",
        url=where,
        retryable=True,
    )


def _packages(purpose: str) -> tuple[Any, Any, dict[str, Any]]:
    try:
        types: Any = import_module("pymetastore.hive_metastore.ttypes")
        service: Any = import_module("pymetastore.hive_metastore.ThriftHiveMetastore")
        # thrift logs each failure with its traceback, and raises the same
        logging.getLogger("thrift").addHandler(logging.NullHandler())
        parts = ("Thrift", "transport.TSocket", "transport.TTransport", "protocol.TBinaryProtocol")
        return types, service, {part: import_module(f"thrift.{part}") for part in parts}
    except ImportError as error:
        raise UnsupportedFeature(
            f"{purpose} needs the package pymetastore", hint="pip install 'lakebed[hive]'"
        ) from error
