"""Partition paths: one part for each partition field, joined by `/`, and back from a path to the fields' texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.base import RowExpression, columns_of, repeat_text, sql_literal
from lakebed.expressions.escape import escape_arrow, escape_sql, unescape
from lakebed.expressions.key_text import KeyText

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"


class PathPart(RowExpression, Protocol):
    """The text of one partition field inside a path, never null; `slashes` is how many `/` it holds, None if that is
    open.
    """

    @property
    def field(self) -> str: ...

    @property
    def slashes(self) -> int | None: ...

    @property
    def has_sql(self) -> bool:
        """Whether there is Spark SQL for it; else every engine takes `arrow`."""
        ...

    def value_of(self, text: str) -> str | None:
        """The field's text behind the part's text (null for the default partition)."""
        ...


@dataclass(frozen=True, slots=True)
class ValuePart:
    """A field's own text; null and empty read `__HIVE_DEFAULT_PARTITION__`."""

    text: KeyText
    hive_style: bool = False
    url_encode: bool = False
    slash_dates: bool = False

    @property
    def field(self) -> str:
        return self.text.column

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text.columns

    @property
    def slashes(self) -> int | None:
        return 0 if self.url_encode else None

    @property
    def has_sql(self) -> bool:
        return True

    def sql(self, schema: pa.Schema) -> str:
        text = self.text.sql(schema)
        shown = escape_sql(text) if self.url_encode else text
        if self.slash_dates and not self.hive_style:
            shown = f"replace({shown}, '-', '/')"
        if self.text.can_be_empty(schema):
            shown = f"CASE WHEN {text} != '' THEN {shown} ELSE '{DEFAULT_PARTITION}' END"
        else:
            shown = f"coalesce({shown}, '{DEFAULT_PARTITION}')"
        return f"concat({sql_literal(self.field + '=')}, {shown})" if self.hive_style else shown

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        text = self.text.arrow(batch)
        shown = escape_arrow(text) if self.url_encode else text
        if self.slash_dates and not self.hive_style:
            shown = pc.replace_substring(shown, "-", "/")
        empty = pc.fill_null(pc.equal(text, ""), True)
        shown = pc.if_else(empty, DEFAULT_PARTITION, shown)
        return pc.binary_join_element_wise(f"{self.field}=", shown, "") if self.hive_style else shown

    def value_of(self, text: str) -> str | None:
        if text == DEFAULT_PARTITION:
            return None
        if self.slash_dates and not self.hive_style:
            text = text.replace("/", "-")
        return unescape(text) if self.url_encode else text


@dataclass(frozen=True, slots=True)
class PartitionPath:
    """The parts joined by `/`; with no parts the empty path of a table that is not partitioned."""

    parts: tuple[PathPart, ...]
    hive_style: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(self.parts)

    @property
    def has_sql(self) -> bool:
        return all(part.has_sql for part in self.parts)

    def sql(self, schema: pa.Schema) -> str:
        parts = [part.sql(schema) for part in self.parts]
        if len(parts) < 2:
            return parts[0] if parts else "''"
        joined = ", '/', ".join(parts)
        return f"concat({joined})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        parts = [part.arrow(batch) for part in self.parts]
        if not parts:
            return repeat_text("", batch.num_rows)
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")

    def values(self, path: str) -> dict[str, str | None]:
        """The fields' texts in a path, decoded; empty when the path does not tell where one field ends and the next
        begins.

        A timestamp field's text is what was printed, not the column's value.
        """
        texts = self._hive_texts(path) if self.hive_style else self._plain_texts(path)
        if texts is None:
            return {}
        return {part.field: part.value_of(text) for part, text in zip(self.parts, texts, strict=True)}

    def _hive_texts(self, path: str) -> list[str] | None:
        pattern = "/".join(f"{re.escape(part.field)}=(.*)" for part in self.parts)
        found = re.fullmatch(pattern, path, re.DOTALL)
        if found is None:
            return None
        lazy = re.fullmatch(pattern.replace("(.*)", "(.*?)"), path, re.DOTALL)
        return list(found.groups()) if lazy and lazy.groups() == found.groups() else None

    def _plain_texts(self, path: str) -> list[str] | None:
        pieces = path.split("/")
        open_parts = [part for part in self.parts if part.slashes is None]
        known = sum((part.slashes or 0) + 1 for part in self.parts)
        spare = len(pieces) - known
        if not self.parts:
            return [] if path == "" else None
        if spare < 0 or (spare and len(open_parts) != 1):
            return None
        texts: list[str] = []
        for part in self.parts:
            size = 1 + (part.slashes or 0) + (spare if part.slashes is None else 0)
            texts.append("/".join(pieces[:size]))
            del pieces[:size]
        return texts
