"""HBase by its own protocol: ZooKeeper names the server of the meta table, which names those of the regions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.zookeeper import import_kazoo
from lakebed.index.hbase.client import COLUMNS, FAMILY, ROWS, HBaseTable, Pace, unanswered
from lakebed.index.hbase.connection import (
    Answer,
    Connection,
    Unserved,
    bytes_field,
    column_field,
    data_of,
    field_head,
    fields,
    first_fields,
    joined,
    number_field,
    text_of,
)
from lakebed.schema.plain_arrow import as_numpy

Int64s = npt.NDArray[np.int64]
Server = tuple[str, int]

_META = b"hbase:meta,,1"
_PUT, _DELETE, _DELETE_FAMILY = 2, 3, 2
_SCANNED = 1000
# Calls under way on a connection at a time.
_WINDOW = 4
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_FOREVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Region:
    """A range of rows, and the server that serves it."""

    start: bytes
    end: bytes
    name: bytes
    server: Server


@dataclass
class _Batch:
    """The rows of one call to a server: region by region, the region and the numbers of the rows."""

    parts: list[tuple[Region, Int64s]] = field(default_factory=list[tuple[Region, Int64s]])

    @property
    def rows(self) -> int:
        return sum(len(at) for _, at in self.parts)

    @property
    def numbers(self) -> Int64s:
        return np.concatenate([at for _, at in self.parts])


class NativeClient:
    """A `client.Client` that speaks HBase's own protocol. Needs the package kazoo."""

    def __init__(self, table: HBaseTable) -> None:
        self._table = table
        self._kazoo = import_kazoo("the HBase index", "hbase")
        self._connections: dict[Server, Connection] = {}
        self._regions: list[Region] = []
        qps = None if table.max_qps is None else table.max_qps * table.qps_fraction
        self._reads, self._writes = Pace(qps, table.get_pause_ms / 1000), Pace(qps, table.put_pause_ms / 1000)

    def get(self, rows: pa.BinaryArray) -> pa.Table:
        columns = bytes_field(1, FAMILY) + b"".join(bytes_field(2, name) for name in COLUMNS.values())
        requests = joined(column_field(1, rows), bytes_field(2, columns) + number_field(6, 1))
        parts: list[pa.Table] = []
        actions = column_field(3, column_field(3, requests))
        self._multi(rows, actions, self._table.get_batch, self._reads, lambda a: parts.append(_rows_of(a)))
        return pa.concat_tables([ROWS.empty_table(), *parts]).combine_chunks()

    def put(self, rows: pa.BinaryArray, cells: Mapping[str, pa.BinaryArray | bytes]) -> None:
        values: list[pa.BinaryArray | bytes] = []
        for name, value in cells.items():
            qualifier = bytes_field(1, COLUMNS[name])
            if isinstance(value, bytes):
                values.append(bytes_field(2, qualifier + bytes_field(2, value)))
            else:
                values.append(column_field(2, joined(qualifier, column_field(2, value))))
        column = joined(bytes_field(1, FAMILY), *values, pa.repeat(pa.scalar(b"", pa.binary()), len(rows)))
        self._mutate(rows, joined(column_field(1, rows), number_field(2, _PUT), column_field(3, column)))

    def delete(self, rows: pa.BinaryArray, times: pa.Array) -> None:
        encoded = times.dictionary_encode()
        kinds = [
            bytes_field(1, FAMILY)
            + bytes_field(2, bytes_field(1, b"") + number_field(3, time_) + number_field(4, _DELETE_FAMILY))
            for time_ in encoded.dictionary.to_pylist()
        ]
        column = pa.array(kinds, pa.binary()).take(encoded.indices)
        self._mutate(rows, joined(column_field(1, rows), number_field(2, _DELETE), column_field(3, column)))

    def scan(self, since: int) -> Iterator[pa.Table]:
        start = b""
        while True:
            region = self._steadily(lambda at=start: self._region_of(at))
            yield from self._scan_region(region, since)
            if not region.end:
                return
            start = region.end

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._regions = []

    def _mutate(self, rows: pa.BinaryArray, mutations: pa.BinaryArray) -> None:
        actions = column_field(3, column_field(2, mutations))
        self._multi(rows, actions, self._table.put_batch, self._writes, lambda _: None)

    def _multi(
        self, rows: pa.BinaryArray, actions: pa.BinaryArray, size: int, pace: Pace, take: Callable[[Answer], None]
    ) -> None:
        """Send every action to the region of its row, repeated until it succeeds; `take` is called with each answer."""
        left = np.arange(len(rows), dtype=np.int64)

        def attempt() -> None:
            nonlocal left
            failed: list[tuple[Int64s, Unserved]] = []
            servers = self._batches(rows, left, size)
            runs = [(self._connection, server, batches) for server, batches in servers.items()]
            with ThreadPoolExecutor(max(1, min(16, len(runs)))) as pool:
                for lost in pool.map(lambda run: _Calls(run[0], run[1], run[2], actions, pace).run(take), runs):
                    failed += lost
            left = np.concatenate([numbers for numbers, _ in failed]) if failed else left[:0]
            for _, error in sorted(failed, key=lambda failure: failure[1].passing):
                raise error

        if len(rows):
            self._steadily(attempt)

    def _steadily(self, attempt: Callable[[], Any]) -> Any:
        """The result of `attempt`, which is repeated while servers fail and regions move, until the time for retries is
        over."""
        end = time.monotonic() + self._table.retry_ms / 1000
        tried = 0
        while True:
            try:
                return attempt()
            except Unserved as error:
                pause = _PAUSES[min(tried, len(_PAUSES) - 1)]
                if not error.passing or time.monotonic() + pause > end:
                    raise unanswered(self._table, str(error), passing=error.passing) from error
            self.close()
            time.sleep(pause)
            tried += 1

    def _batches(self, rows: pa.BinaryArray, numbers: Int64s, size: int) -> dict[Server, list[_Batch]]:
        """The rows of these numbers by server, in calls of up to `size` rows."""
        regions = self._all_regions()
        of_row = _regions_of(rows.take(pa.array(numbers)), [region.start for region in regions])
        order = np.argsort(of_row, kind="stable")
        bounds = np.searchsorted(of_row[order], np.arange(len(regions) + 1))
        batches_by_server: dict[Server, list[_Batch]] = {}
        for region, first, last in zip(regions, bounds[:-1], bounds[1:], strict=True):
            if first == last:
                continue
            batches = batches_by_server.setdefault(region.server, [_Batch()])
            while first < last:
                if batches[-1].rows >= size:
                    batches.append(_Batch())
                end = min(last, first + size - batches[-1].rows)
                batches[-1].parts.append((region, numbers[order[first:end]]))
                first = end
        return batches_by_server

    def _connection(self, server: Server) -> Connection:
        connection = self._connections.get(server)
        if connection is None:
            connection = self._connections[server] = Connection(*server, self._table.connection_ms / 1000)
        return connection

    def _all_regions(self) -> list[Region]:
        """The regions of the table, by their first rows, from the meta table."""
        if not self._regions:
            name = self._table.table.encode()
            meta = self._connection(self._meta_server())
            named = [*_meta_rows(meta, name)]
            regions = sorted((r for r in named if r is not None), key=lambda region: region.start)
            if not regions:
                raise Unserved(f"there is no table {self._table.table!r}", passing=False)
            ends = [b"", *(region.end for region in regions)]
            if any(region.start != end for region, end in zip(regions, ends, strict=False)) or ends[-1]:
                raise Unserved(f"not all regions of table {self._table.table!r} are served", passing=True)
            self._regions = regions
        return self._regions

    def _region_of(self, row: bytes) -> Region:
        return [region for region in self._all_regions() if region.start <= row][-1]

    def _meta_server(self) -> Server:
        """The server of the meta table, from ZooKeeper."""
        table, kazoo = self._table, self._kazoo
        client = kazoo.client.KazooClient(
            hosts=table.hosts, timeout=table.session_ms / 1000, connection_retry={"max_tries": 1}, read_only=True
        )
        try:
            client.start(timeout=table.connection_ms / 1000)
            data, _ = client.get(f"{table.znode.rstrip('/')}/meta-region-server")
            return _server_in(memoryview(data))
        except kazoo.exceptions.NoNodeError as error:
            raise Unserved(f"ZooKeeper names no server of hbase:meta below {table.znode}", passing=True) from error
        except (kazoo.exceptions.KazooException, kazoo.handlers.threading.KazooTimeoutError, OSError) as error:
            raise Unserved(f"ZooKeeper: {type(error).__name__}: {error}", passing=True) from error
        except (ValueError, IndexError, KeyError) as error:
            raise Unserved(f"what ZooKeeper has in {table.znode} is not HBase's", passing=False) from error
        finally:
            client.stop()
            client.close()

    def _scan_region(self, region: Region, since: int) -> Iterator[pa.Table]:
        times = bytes_field(6, number_field(1, since) + number_field(2, _FOREVER)) if since else b""
        about = bytes_field(1, bytes_field(1, FAMILY)) + bytes_field(3, region.start) + bytes_field(4, region.end)

        def scanned() -> list[pa.Table]:
            current_region = self._region_of(region.start)
            answers = scan(
                self._connection(current_region.server), current_region.name, about + times + number_field(7, 1)
            )
            return [_rows_of(answer) for answer in answers]

        yield from self._steadily(scanned)


class _Calls:
    """The calls to one server, several at a time."""

    def __init__(
        self,
        connect: Callable[[Server], Connection],
        server: Server,
        batches: Sequence[_Batch],
        actions: pa.BinaryArray,
        pace: Pace,
    ) -> None:
        self._connect, self._server, self._batches, self._actions, self._pace = connect, server, batches, actions, pace

    def run(self, take: Callable[[Answer], None]) -> list[tuple[Int64s, Unserved]]:
        """Make the calls; `take` is called with each answer. Returns the rows that the server did not serve, with the
        reason."""
        failed: list[tuple[Int64s, Unserved]] = []
        unanswered = dict(enumerate(self._batches))
        waiting = list(unanswered)
        under_way: dict[int, int] = {}
        try:
            connection = self._connect(self._server)
            while unanswered:
                if waiting and len(under_way) < _WINDOW:
                    batch = unanswered[waiting[0]]
                    self._pace.take(connection.where, batch.rows)
                    under_way[connection.send("Multi", *self._request(batch))] = waiting.pop(0)
                    continue
                call, answer = connection.receive()
                number = under_way.pop(call)
                batch = unanswered[number]
                if isinstance(answer, Unserved):
                    lost = [(batch.numbers, answer)]
                else:
                    take(answer)
                    lost = _unserved_parts(answer, batch)
                del unanswered[number]
                failed += lost
        except Unserved as error:
            failed += [(batch.numbers, error) for batch in unanswered.values()]
        return failed

    def _request(self, batch: _Batch) -> list[bytes | memoryview]:
        parts: list[bytes | memoryview] = []
        for region, numbers in batch.parts:
            front = _specifier(region.name)
            actions = data_of(self._actions.take(pa.array(numbers)))
            parts += [field_head(1, len(front) + len(actions)) + front, actions]
        return parts


def scan(connection: Connection, region: bytes, about: bytes) -> Iterator[Answer]:
    """The answers of a scan over a region."""
    answer = connection.call("Scan", _specifier(region) + bytes_field(2, about) + number_field(4, _SCANNED))
    while True:
        answer_fields = first_fields(answer.message)
        yield answer
        scanner = answer_fields.get(2)
        if not (answer_fields.get(3) and answer_fields.get(8)):
            if isinstance(scanner, int):
                connection.call("Scan", number_field(3, scanner) + number_field(4, 0) + number_field(5, 1))
            return
        assert isinstance(scanner, int)
        answer = connection.call("Scan", number_field(3, scanner) + number_field(4, _SCANNED))


def _specifier(region: bytes) -> bytes:
    return bytes_field(1, number_field(1, 1) + bytes_field(2, region))


def _rows_of(answer: Answer) -> pa.Table:
    return answer.cells().table(COLUMNS).cast(ROWS)


def _unserved_parts(answer: Answer, batch: _Batch) -> list[tuple[Int64s, Unserved]]:
    """The rows of the regions in which an action failed (all their rows are requested again), with the reason."""
    results = [value for number, value in fields(answer.message) if number == 1]
    if len(results) != len(batch.parts):
        return [(batch.numbers, Unserved(f"{len(results)} answers for {len(batch.parts)} regions", passing=True))]
    failed: list[tuple[Int64s, Unserved]] = []
    well: set[bytes] = set()
    for result, (_, numbers) in zip(results, batch.parts, strict=True):
        assert isinstance(result, memoryview)
        error = _error_in(result, len(numbers), well)
        if error is not None:
            failed.append((numbers, error))
    return failed


def _error_in(result: memoryview, rows: int, well: set[bytes]) -> Unserved | None:
    """The failure in a region's result; None if there is none. `well` caches messages without an error, since most
    messages are equal."""
    served = 0
    for number, value in fields(result):
        assert isinstance(value, memoryview)
        if number == 2:
            return _thrown(value)
        if number != 1:
            continue
        served += 1
        message = bytes(value)
        if message not in well:
            exception = first_fields(value).get(3)
            if isinstance(exception, memoryview):
                return _thrown(exception)
            well.add(message)
    return None if served == rows else Unserved(f"{served} results for {rows} rows", passing=True)


def _thrown(pair: memoryview) -> Unserved:
    about = first_fields(pair)
    return Unserved.of_java(text_of(about.get(1)), text_of(about.get(2)))


def _regions_of(rows: pa.BinaryArray, starts: Sequence[bytes]) -> Int64s:
    """The number of the region of each row, given the first rows of all regions, in order."""
    if len(starts) == 1:
        return np.zeros(len(rows), np.int64)
    starts_and_rows = pa.concat_arrays([pa.array(starts, pa.binary()), rows])
    order = as_numpy(pc.array_sort_indices(starts_and_rows))  # stable: a region's first row comes after its start
    passed = np.cumsum(order < len(starts)) - 1
    numbers = np.empty(len(starts_and_rows), np.int64)
    numbers[order] = passed
    return numbers[len(starts) :]


def _meta_rows(meta: Connection, table: bytes) -> Iterator[Region | None]:
    """The regions of a table; None for a region that is not served (for example a parent that was split)."""
    about = bytes_field(1, bytes_field(1, b"info"))
    about += bytes_field(3, table + b",,") + bytes_field(4, table + b"-") + number_field(7, 1)
    columns = {"about": b"regioninfo", "server": b"server"}
    for answer in scan(meta, _META, about):
        for row in answer.cells().table(columns).select(["row", *columns]).to_pylist():
            if row["about"] is not None:
                yield _region(row["row"], row["about"], row["server"])


def _region(name: bytes, about: bytes, server: bytes | None) -> Region | None:
    region_info = first_fields(memoryview(about)[4:])  # after the magic PBUF
    if region_info.get(5) or region_info.get(6) or region_info.get(7) or not server:  # offline, split, a replica
        return None
    start, end = (bytes(v) if isinstance(v := region_info.get(n), memoryview) else b"" for n in (3, 4))
    host, _, port = server.decode().rpartition(":")
    return Region(start, end, name, (host, int(port)))


def _server_in(data: memoryview) -> Server:
    """The server that a node of ZooKeeper names: a mark, the length of its writer's name, the name, PBUF, and a
    message."""
    if data[0] != 255:
        raise ValueError("no mark")
    at = 5 + int.from_bytes(data[1:5], "big")
    if bytes(data[at : at + 4]) != b"PBUF":
        raise ValueError("no message")
    named = first_fields(data[at + 4 :])[1]
    assert isinstance(named, memoryview)
    server = first_fields(named)
    port = server[2]
    assert isinstance(port, int)
    return text_of(server[1]), port
