"""Partition paths: one part for each partition field, joined by `/`, and back from a path to the fields' texts.
Values that lead elsewhere, that some storage cannot have, or that would read back wrong are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord
from lakebed.expressions.base import (
    Column,
    RowExpression,
    columns_of,
    escape_arrow,
    escape_sql,
    repeat_text,
    sql_literal,
    unescape,
)
from lakebed.expressions.key_text import KeyText
from lakebed.schema.plain_arrow import text_scalar

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# The path of values that would be read as null where files lack the column; no table can have it.
_NO_PATH = f"{DEFAULT_PARTITION}\x7f"


class PathPart(RowExpression, Protocol):
    """The text of one partition field inside a path, never null; `slashes` is the number of `/` in it, None if it
    varies."""

    @property
    def field(self) -> str: ...

    @property
    def slashes(self) -> int | None: ...

    @property
    def has_sql(self) -> bool:
        """Whether there is Spark SQL for the part; otherwise every engine uses `arrow`."""
        ...

    def value_of(self, text: str) -> str | None:
        """The value of the field in the text of this part; None for the default partition."""
        ...


@dataclass(frozen=True, slots=True)
class ValuePart:
    """A field's own text; null and empty are written `__HIVE_DEFAULT_PARTITION__`. If files do not have the column
    (`dropped`), only null is: for the empty text and that text itself the path is refused."""

    text: KeyText
    hive_style: bool = False
    url_encode: bool = False
    slash_dates: bool = False
    dropped: bool = False

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
        encoded = escape_sql(text) if self.url_encode else text
        if self.slash_dates and not self.hive_style:
            encoded = f"replace({encoded}, '-', '/')"
        if self.text.can_be_empty(schema) and self.dropped:
            encoded = (
                f"CASE WHEN {text} IN ('', '{DEFAULT_PARTITION}') THEN {sql_literal(_NO_PATH)}"
                f" ELSE coalesce({encoded}, '{DEFAULT_PARTITION}') END"
            )
        elif self.text.can_be_empty(schema):
            encoded = f"CASE WHEN {text} != '' THEN {encoded} ELSE '{DEFAULT_PARTITION}' END"
        else:
            encoded = f"coalesce({encoded}, '{DEFAULT_PARTITION}')"
        return f"concat({sql_literal(self.field + '=')}, {encoded})" if self.hive_style else encoded

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        text = self.text.arrow(batch)
        encoded = escape_arrow(text) if self.url_encode else text
        if self.slash_dates and not self.hive_style:
            encoded = pc.replace_substring(encoded, "-", "/")
        if self.dropped:
            lost = pc.is_in(text, value_set=pa.array(["", DEFAULT_PARTITION], text.type))
            encoded = pc.if_else(lost, _NO_PATH, encoded)
        no_text, default, name = [pa.scalar(text, pa.string()) for text in ("", DEFAULT_PARTITION, f"{self.field}=")]
        encoded = pc.if_else(pc.fill_null(pc.equal(encoded, no_text), True), default, encoded)
        return pc.binary_join_element_wise(name, encoded, no_text) if self.hive_style else encoded

    def value_of(self, text: str) -> str | None:
        if text == DEFAULT_PARTITION:
            return None
        if self.slash_dates and not self.hive_style:
            text = text.replace("/", "-")
        return unescape(text) if self.url_encode else text


@dataclass(frozen=True, slots=True)
class PartitionPath:
    """The parts joined by `/`; without parts the empty path of a table that is not partitioned."""

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
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, text_scalar("/"))

    def determines_values(self, schema: pa.Schema) -> bool:
        """Whether rows of this schema with equal paths have equal partition fields, but for values that share the
        default partition path."""
        parts = [part for part in self.parts if isinstance(part, ValuePart) and part.text.determines_values(schema)]
        texts = [part for part in parts if part.text.is_free_text(schema)]
        dates = any(part.slash_dates for part in parts)
        apart = len(self.parts) == 1 or all(part.url_encode for part in texts)
        return len(parts) == len(self.parts) and apart and not (dates and texts)

    def values(self, path: str) -> dict[str, str | None]:
        """The decoded texts of the fields in a path, by field, None for the default partition. Empty if the path does
        not show where one field ends and the next begins.

        A timestamp field's text is what was printed, not the column's value.
        """
        texts = self._hive_texts(path) if self.hive_style else self._plain_texts(path)
        if texts is None:
            return {}
        return {part.field: part.value_of(text) for part, text in zip(self.parts, texts, strict=True)}

    def _hive_texts(self, path: str) -> list[str] | None:
        pattern = "/".join(f"{re.escape(part.field)}=(.*)" for part in self.parts)
        greedy = re.fullmatch(pattern, path, re.DOTALL)
        if greedy is None:
            return None
        lazy = re.fullmatch(pattern.replace("(.*)", "(.*?)"), path, re.DOTALL)
        return list(greedy.groups()) if lazy and lazy.groups() == greedy.groups() else None

    def _plain_texts(self, path: str) -> list[str] | None:
        pieces = path.split("/")
        open_parts = [part for part in self.parts if part.slashes is None]
        minimum = sum((part.slashes or 0) + 1 for part in self.parts)
        spare = len(pieces) - minimum
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


# The key under which the metadata table lists the partition paths.
_ALL_PARTITIONS = "__all_partitions__"
# What the name of a folder may have on local disks and on HDFS.
_NAME_BYTES = 255
_CONTROL = re.compile("[\x00-\x1f\x7f\\\\]")
# Paths with nothing in them to look at closer; one search over all of them in the usual case.
_SUSPECT = r"[\x00-\x1f\x7f\\]|(^|[/=])/|/$|(^|/)\.|^__all_partitions__$"


@dataclass(frozen=True, slots=True)
class PathCheck:
    """A check of partition paths, which tasks can also make. With `dropped` the files do not have the partition
    columns: then paths must determine them."""

    path: PartitionPath
    dropped: bool = False

    def fault(self, path: str) -> str | None:
        """The fault of a partition path of the table as text; None if it is valid."""
        wrong = self._unusable(path)
        if wrong is None and self.dropped and path and not self.path.values(path):
            wrong = "files do not hold the partition columns, and the path does not show where one ends"
        return wrong

    def require(self, path: str) -> None:
        """Raise `InvalidRecord` for a path that the table cannot have."""
        wrong = self.fault(path)
        if wrong is not None:
            fields = ", ".join(part.field for part in self.path.parts)
            raise _refused(f"rows have the partition path {path!r} (of {fields})", wrong, {"partition": path})

    def require_values(self, rows: pa.Table) -> None:
        """Raise `InvalidRecord` for the first value of a partition column whose path is invalid."""
        several = len(self.path.parts) > 1
        for part in self.path.parts:
            name = part.field
            kind = Column(name).type_in(rows.schema)
            values = pa.chunked_array([Column(name).arrow(b) for b in rows.to_batches()], kind)
            if pa.types.is_dictionary(kind):
                values = values.cast(kind.value_type)
            if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
                continue
            distinct = pc.unique(values)
            texts = part.arrow(pa.RecordBatch.from_arrays([distinct], names=[name]))
            for at in pc.indices_nonzero(pc.fill_null(self._suspects(texts, several), False)).to_pylist():
                wrong = self._fault_of(part, texts[at].as_py(), several)
                if wrong is not None:
                    value, row = distinct[at].as_py(), pc.index(values, distinct[at]).as_py()
                    subject = f"partition column {name!r} has the value {_preview(value)} in row {row} (counted from 0)"
                    raise _refused(subject, wrong, {"column": name, "value": value, "row": row})

    def _suspects(self, texts: pa.Array, several: bool) -> pa.Array:
        long = pc.greater(pc.binary_length(texts), pa.scalar(_NAME_BYTES, pa.int64()))
        suspects = pc.or_(long, pc.match_substring_regex(texts, _SUSPECT))
        if self.dropped and several:
            suspects = pc.or_(suspects, pc.match_substring(texts, "/"))
        return suspects

    def _fault_of(self, part: PathPart, text: str, several: bool) -> str | None:
        wrong = self._unusable(text)
        if wrong is None and self.dropped and several and part.slashes is None and "/" in text:
            wrong = "files do not hold the partition columns, and with a slash the path does not show where one ends"
        return None if several and wrong == _RESERVED else wrong

    def _unusable(self, path: str) -> str | None:
        if not path:
            return None
        if self.dropped and _NO_PATH in path:
            return _READS_NULL
        if _CONTROL.search(path):
            return "it has a control character or a backslash"
        if path == _ALL_PARTITIONS:
            return _RESERVED
        steps = path.split("/")
        empty_steps = {f"{part.field}=" for part in self.path.parts} if self.path.hive_style else set[str]()
        if not all(steps) or any(step in empty_steps for step in steps[:-1]):
            return "it begins or ends with a slash, or has two in a row"
        for step in steps:
            if step in (".", ".."):
                return f"the folder {step!r} is another one"
            if step.lower().startswith(".hoodie"):
                return "names that begin with .hoodie are the table's own"
            if len(step.encode()) > _NAME_BYTES:
                return f"a folder's name may have {_NAME_BYTES} bytes, this has {len(step.encode())}"
        return None


_READS_NULL = f"files do not hold the partition columns, and its path {DEFAULT_PARTITION!r} would read null"
_RESERVED = f"{_ALL_PARTITIONS} is a name of the metadata table's"


def _preview(value: str) -> str:
    return repr(value if len(value) <= 80 else value[:80] + "...")


def _refused(value_text: str, why: str, context: dict[str, object]) -> InvalidRecord:
    return InvalidRecord(
        f"{value_text}, which cannot be a partition path: {why}",
        hint="change the value, or partition by another column; a table made with"
        " hoodie.datasource.write.partitionpath.urlencode=true encodes slashes, backslashes and control characters",
        context=context,
    )
