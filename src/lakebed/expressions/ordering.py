"""Ordering fields: which of two rows with one key is newer."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakebed.errors import SchemaConflict
from lakebed.expressions.base import Column, sql_literal, unique


@dataclass(frozen=True, slots=True)
class Ordering:
    """The ordering value of a row: the column itself for one field, a struct of the columns for several.

    >>> batch = pa.record_batch({"a": [1], "b": ["x"]})
    >>> Ordering(("a", "b")).arrow(batch).to_pylist()
    [{'a': 1, 'b': 'x'}]
    """

    fields: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return unique(self.fields)

    def check(self, schema: pa.Schema) -> None:
        """SchemaConflict when a field is missing or its type has no order (map, array, struct, null)."""
        for name in self.fields:
            kind = Column(name).type_in(schema)
            if pa.types.is_nested(kind) or pa.types.is_null(kind):
                raise SchemaConflict(
                    f"ordering field `{name}` is of type {kind}, whose values have no order",
                    hint="Use a number, string, date, timestamp, decimal, boolean or binary column",
                    context={"column": name, "type": str(kind)},
                )

    def sql(self, schema: pa.Schema) -> str:
        self.check(schema)
        parts = [Column(name).sql(schema) for name in self.columns]
        if len(parts) == 1:
            return parts[0]
        pairs = ", ".join(f"{sql_literal(name)}, {part}" for name, part in zip(self.columns, parts, strict=True))
        return f"named_struct({pairs})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        self.check(batch.schema)
        parts = [Column(name).arrow(batch) for name in self.columns]
        return parts[0] if len(parts) == 1 else pa.StructArray.from_arrays(parts, list(self.columns))
