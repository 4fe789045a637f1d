"""Row expressions of the write path: constants, and tests on the location columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.base import RowExpression
from lakebed.model import FILE_ID, INSTANT


@dataclass(frozen=True, slots=True)
class NullText:
    """A null string in every row."""

    columns: tuple[str, ...] = ()

    def sql(self, schema: pa.Schema) -> str:
        return "cast(null as string)"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.nulls(batch.num_rows, pa.string())


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        return f"`{self.column}` is null"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.is_null(batch.column(self.column))


@dataclass(frozen=True, slots=True)
class NamePart:
    """File id (0) or instant (2) out of a base file name in a column."""

    column: str
    part: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        text = f"element_at(split(`{self.column}`, '_'), {self.part + 1})"
        return f"substring_index({text}, '.', 1)"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        names = batch.column(self.column)
        if pa.types.is_dictionary(names.type):
            names = names.dictionary_decode()
        parts = pc.list_element(pc.split_pattern(names, "_"), self.part)
        return pc.list_element(pc.split_pattern(parts, "."), 0)


NO_LOCATION: Mapping[str, RowExpression] = {FILE_ID: NullText(), INSTANT: NullText()}
IS_NULL_FILE_ID: RowExpression = IsNull(FILE_ID)
