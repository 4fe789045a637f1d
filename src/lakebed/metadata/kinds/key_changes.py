"""What a write task reports of one file: the record keys that were added and removed, with the values that secondary
indexes hold.

A row is a key, whether it was in the file group before and whether it is now, and for each indexed field its text then
and now. Rows of a key that stays with the same values are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import UnsupportedFeature
from lakebed.expressions.base import Column
from lakebed.format.hashes import plain_strings
from lakebed.model import RECORD_KEY
from lakebed.schema.java_text import to_java_text

KEY, BEFORE, AFTER = "key", "was", "is"


def changes_schema(fields: Sequence[str] = ()) -> pa.Schema:
    """The columns of key changes: `key`, `was`, `is`, and `was.<field>`, `is.<field>` for each indexed field."""
    flags = [(KEY, pa.string()), (BEFORE, pa.bool_()), (AFTER, pa.bool_())]
    return pa.schema([*flags, *((f"{side}.{name}", pa.string()) for name in fields for side in (BEFORE, AFTER))])


def secondary_text(values: pa.Array) -> pa.StringArray:
    """Values of an indexed field as a secondary index holds them: numbers in Java's form, dates as days and timestamps
    as microseconds since 1970, null as null. Floating numbers have the shortest text that reads back the same, as Java
    prints them from version 19 on; some (2.0**60) have more digits before, and real Hudi on an older Java does not find
    those by the index.

    >>> from datetime import date
    >>> secondary_text(pa.array([date(1970, 1, 3), None])).to_pylist()
    ['2', None]

    Raises `UnsupportedFeature` for types of which Hudi has no such index.
    """
    kind = values.type.value_type if pt.is_dictionary(values.type) else values.type
    if not can_index(kind):
        raise UnsupportedFeature(
            f"a secondary index on a column of type {kind}",
            hint="Index a text, an integer, a floating number, a date or a timestamp.",
            context={"feature": "secondary index", "type": str(kind)},
        )
    if pt.is_date(kind):
        values = values.cast(pa.date32()).cast(pa.int32())
    elif pt.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz), safe=False)
    return plain_strings(to_java_text(values)).cast(pa.string())


def can_index(kind: pa.DataType) -> bool:
    """Whether there are secondary indexes on columns of this type."""
    plain = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_integer(kind) or pt.is_floating(kind)
    return plain or pt.is_date(kind) or pt.is_timestamp(kind)


@dataclass(slots=True)
class KeyChanges:
    """Collects the changes while a file is written. `fields` are those of secondary indexes, by dotted path."""

    fields: tuple[str, ...] = ()
    _parts: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])

    @property
    def columns(self) -> list[str]:
        """The columns that rows must have: the key, and those with the fields (left out where a file lacks them)."""
        return [RECORD_KEY, *dict.fromkeys(name.partition(".")[0] for name in self.fields)]

    def added(self, rows: pa.RecordBatch) -> None:
        """Rows whose keys the file group did not hold."""
        self._put(rows.column(RECORD_KEY), None, rows)

    def removed(self, rows: pa.RecordBatch) -> None:
        """Rows that the file group does not hold any more."""
        self._put(rows.column(RECORD_KEY), rows, None)

    def updated(self, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        """Rows and what takes their place, in the same order; noted where an indexed value changes."""
        if self.fields:
            self._put(before.column(RECORD_KEY), before, after)

    def table(self) -> pa.Table:
        """All that was noted."""
        return pa.Table.from_batches(self._parts, changes_schema(self.fields))

    def _put(self, keys: pa.Array, before: pa.RecordBatch | None, after: pa.RecordBatch | None) -> None:
        rows = len(keys)
        if not rows:
            return
        flags = [pa.repeat(pa.scalar(side is not None), rows) for side in (before, after)]
        values = [_texts(side, name, rows) for name in self.fields for side in (before, after)]
        columns = [plain_strings(keys).cast(pa.string()), *flags, *values]
        batch = pa.RecordBatch.from_arrays(columns, schema=changes_schema(self.fields))
        if before is not None and after is not None:
            batch = batch.filter(_differ(batch, self.fields))
        if batch.num_rows:
            self._parts.append(batch)


def as_bytes(changes: pa.Table, *, compressed: bool = False) -> bytes:
    """Key changes as an Arrow stream; `from_bytes` reads it."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compressed else None)
    with pa.ipc.new_stream(sink, changes.schema, options=options) as stream:
        stream.write_table(changes)
    return sink.getvalue().to_pybytes()


def from_bytes(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()


def field_of(changes: pa.Table, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Texts of an indexed field before and after."""
    return changes[f"{BEFORE}.{name}"], changes[f"{AFTER}.{name}"]


def _texts(rows: pa.RecordBatch | None, name: str, count: int) -> pa.Array:
    if rows is None or name.partition(".")[0] not in rows.schema.names:
        return pa.nulls(count, pa.string())
    return secondary_text(Column(name).arrow(rows))


def _differ(batch: pa.RecordBatch, fields: Sequence[str]) -> pa.Array:
    """Rows where one of the fields has another value than before, null being a value."""
    found = pa.repeat(pa.scalar(False), batch.num_rows)
    for name in fields:
        before, after = (batch.column(f"{side}.{name}") for side in (BEFORE, AFTER))
        known = pc.fill_null(pc.not_equal(before, after), False)
        found = pc.or_(found, pc.or_(known, pc.xor(before.is_null(), after.is_null())))
    return found


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """The key changes of one file group by one action."""

    partition: str
    file_id: str
    changes: pa.Table
