"""HBase by its Thrift gateway (version 1), for clusters whose region servers cannot be reached from here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa

from lakebed.errors import UnsupportedFeature
from lakebed.index.hbase.client import COLUMNS, FAMILY, ROWS, HBaseTable, Pace, unanswered

_FULL = {name: FAMILY + b":" + qualifier for name, qualifier in COLUMNS.items()}
_PAUSES = (0.1, 0.5, 1.0, 2.0)
_FINAL = frozenset({"IllegalArgument"})


class ThriftClient:
    """A `client.Client` over the Thrift gateway, row by row. Needs the package happybase."""

    def __init__(self, table: HBaseTable) -> None:
        self._table = table
        self._happybase = _happybase()
        self._open: Any = None
        qps = None if table.max_qps is None else table.max_qps * table.qps_fraction
        self._reads, self._writes = Pace(qps, table.get_pause_ms / 1000), Pace(qps, table.put_pause_ms / 1000)

    def get(self, rows: pa.BinaryArray) -> pa.Table:
        parts = [ROWS.empty_table()]
        for first in range(0, len(rows), self._table.get_batch):
            row_batch = rows[first : first + self._table.get_batch]
            self._reads.take("", len(row_batch))
            parts.append(_rows_of(self._steadily(_get, row_batch.to_pylist())))
        return pa.concat_tables(parts).combine_chunks()

    def put(self, rows: pa.BinaryArray, cells: Mapping[str, pa.BinaryArray | bytes]) -> None:
        for first in range(0, len(rows), self._table.put_batch):
            span = slice(first, first + self._table.put_batch)
            keys = rows[span].to_pylist()
            self._writes.take("", len(keys))
            columns = [
                [value] * len(keys) if isinstance(value, bytes) else value[span].to_pylist() for value in cells.values()
            ]
            names = [_FULL[name] for name in cells]
            self._steadily(_put_all, keys, [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])

    def delete(self, rows: pa.BinaryArray, times: pa.Array) -> None:
        for key, until in zip(rows.to_pylist(), times.to_pylist(), strict=True):
            self._writes.take("", 1)
            self._steadily(_delete, key, until)

    def scan(self, since: int) -> Iterator[pa.Table]:
        rows = self._steadily(_scan)
        for first in range(0, len(rows), self._table.get_batch):
            yield _rows_of(rows[first : first + self._table.get_batch])

    def close(self) -> None:
        if self._open is not None:
            try:
                self._open.close()
            except Exception:  # whatever the transport raises, it is not used again
                self._open = None
        self._open = None

    def _steadily(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        end = time.monotonic() + self._table.retry_ms / 1000
        tried = 0
        while True:
            try:
                if self._open is None:
                    self._open = self._happybase.Connection(
                        self._table.thrift_host, self._table.thrift_port, timeout=self._table.connection_ms
                    )
                return ask(self._open.table(self._table.table), *arguments)
            except Exception as error:  # thriftpy2 has classes of its own, made at run time
                pause = _PAUSES[min(tried, len(_PAUSES) - 1)]
                message = str(getattr(error, "message", "") or error)
                passing = type(error).__name__ not in _FINAL and "NoSuchColumnFamily" not in message
                passing = passing and "TableNotFound" not in message
                if not passing or time.monotonic() + pause > end:
                    first = message.partition("\n")[0]
                    raise unanswered(self._table, f"{type(error).__name__}: {first}", passing=passing) from error
            self.close()
            time.sleep(pause)
            tried += 1


def _get(table: Any, keys: list[bytes]) -> list[Any]:
    return table.rows(keys, list(_FULL.values()), include_timestamp=True)


def _put_all(table: Any, keys: list[bytes], rows: list[dict[bytes, bytes]]) -> None:
    with table.batch() as batch:
        for key, cells in zip(keys, rows, strict=True):
            batch.put(key, cells)


def _delete(table: Any, key: bytes, until: int) -> None:
    table.delete(key, timestamp=until)


def _scan(table: Any) -> list[Any]:
    return list(table.scan(columns=list(_FULL.values()), include_timestamp=True))


def _rows_of(answers: list[Any]) -> pa.Table:
    """The rows as a table, from happybase's answers: pairs of a key and its cells with their times by full name."""
    columns: dict[str, list[Any]] = {"row": [key for key, _ in answers]}
    for name, full in _FULL.items():
        cells = [row.get(full, (None, None)) for _, row in answers]
        columns[name] = [value for value, _ in cells]
        columns[f"{name}.time"] = [at for _, at in cells]
    return pa.table(columns, schema=ROWS)


def _happybase() -> Any:
    try:
        return import_module("happybase")
    except ImportError as error:
        raise UnsupportedFeature(
            "the Thrift transport of the HBase index needs the package happybase", hint="pip install 'lakebed[hbase]'"
        ) from error
