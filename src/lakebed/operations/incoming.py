"""The caller's rows under the table's names: their columns may be written in another case, or hold nothing but null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.engine.arrow_data import given_rows
from lakebed.engine.base import Rows
from lakebed.expressions.base import Column, RowExpression
from lakebed.operations.context import WriteContext
from lakebed.schema.arrow import check_names, has_untyped, is_list, list_of, map_of
from lakebed.schema.conversion import cast_column
from lakebed.schema.spark import spark_type


@dataclass(frozen=True, slots=True)
class InType:
    """A column whose nulls without a type get one."""

    column: Column
    kind: pa.DataType

    @property
    def columns(self) -> tuple[str, ...]:
        return self.column.columns

    def sql(self, schema: pa.Schema) -> str:
        return f"CAST({self.column.sql(schema)} AS {spark_type(self.kind)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return cast_column(self.column.arrow(batch), self.kind)


def incoming_rows(context: WriteContext, data: Any) -> Rows:
    """Rows of the caller's data. A column whose name differs from one of the table's in case alone gets the table's
    name, if no other column has it; one of Arrow's type null (Spark's void) gets the table's type."""
    engine = context.engine
    types = {f.name: f.type for f in context.opened.schema}
    rows = engine.rows(given_rows(data, {name.lower(): kind for name, kind in types.items()} | types))
    given = engine.schema(rows)
    check_names(given.names)
    named = (*context.keys.key_fields, *context.keys.partition_fields, *context.config.ordering_fields)
    folded = {name.lower(): name for name in (*(n for n in named if "." not in n), *types)}
    fitted: dict[str, RowExpression] = {}
    renamed, present = set[str](), frozenset(given.names)
    for field in given:
        name = folded.get(field.name.lower(), field.name)
        if name != field.name and name not in present and name not in fitted:
            renamed.add(field.name)
            fitted[name] = Column(field.name)
        else:
            name = field.name
        kind = _typed(field.type, types[name]) if name in types else field.type
        if kind != field.type:
            fitted[name] = InType(Column(field.name), kind)
    if not fitted:
        return rows
    return engine.derive(rows, fitted, keep=[n for n in given.names if n not in renamed])


def _typed(given: pa.DataType, known: pa.DataType) -> pa.DataType:
    """The given type, with the known one wherever it is null."""
    if pt.is_null(given):
        return known
    if not has_untyped(given):
        return given
    if pt.is_struct(given) and pt.is_struct(known):
        types = {f.name: f.type for f in known}
        return pa.struct([f.with_type(_typed(f.type, types.get(f.name, f.type))) for f in given])
    if pt.is_map(given) and pt.is_map(known):
        return map_of(_typed(given.item_type, known.item_type), nullable=given.item_field.nullable)
    if is_list(given) and is_list(known):
        return list_of(_typed(given.value_type, known.value_type), nullable=given.value_field.nullable)
    return given
