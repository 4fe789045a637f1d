"""Partition paths a table cannot have: those that lead elsewhere, are none on some storage, or read back wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord
from lakebed.expressions.base import Column
from lakebed.expressions.partition_paths import PartitionPath, PathPart

# The key under which the metadata table lists the partition paths.
_ALL_PARTITIONS = "__all_partitions__"
# What the name of a folder may have on local disks and on HDFS.
_NAME_BYTES = 255
_CONTROL = re.compile("[\x00-\x1f\x7f\\\\]")
# Paths with nothing in them to look at closer; one search over all of them in the usual case.
_SUSPECT = r"[\x00-\x1f\x7f\\]|(^|[/=])/|/$|(^|/)\.|^__all_partitions__$"


@dataclass(frozen=True, slots=True)
class PathCheck:
    """Sent to the tasks too. `dropped` says that files lack the partition columns: then paths must tell them."""

    path: PartitionPath
    dropped: bool = False

    def fault(self, path: str) -> str | None:
        """What is wrong with a partition path of the table, or None."""
        wrong = self._unusable(path)
        if wrong is None and self.dropped and path and not self.path.values(path):
            wrong = "files do not hold the partition columns, and the path does not tell where one ends"
        return wrong

    def require(self, path: str) -> None:
        """Raise `InvalidRecord` for a path that the table cannot have."""
        wrong = self.fault(path)
        if wrong is not None:
            fields = ", ".join(part.field for part in self.path.parts)
            raise _refused(f"rows have the partition path {path!r} (of {fields})", wrong, {"partition": path})

    def require_values(self, rows: pa.Table) -> None:
        """Raise `InvalidRecord` for the first value of a partition column that makes such a path."""
        several = len(self.path.parts) > 1
        for part in self.path.parts:
            name = part.field
            kind = Column(name).type_in(rows.schema)
            values = pa.chunked_array([Column(name).arrow(b) for b in rows.to_batches()], kind)
            if pa.types.is_dictionary(kind):
                values = values.cast(kind.value_type)
            if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
                continue
            known = pc.unique(values)
            texts = part.arrow(pa.RecordBatch.from_arrays([known], names=[name]))
            for at in pc.indices_nonzero(pc.fill_null(self._suspects(texts, several), False)).to_pylist():
                wrong = self._fault_of(part, texts[at].as_py(), several)
                if wrong is not None:
                    value, row = known[at].as_py(), pc.index(values, known[at]).as_py()
                    what = f"partition column {name!r} has the value {_shown(value)} in row {row} (counted from 0)"
                    raise _refused(what, wrong, {"column": name, "value": value, "row": row})

    def _suspects(self, texts: pa.Array, several: bool) -> pa.Array:
        long = pc.greater(pc.binary_length(texts), _NAME_BYTES)
        found = pc.or_(long, pc.match_substring_regex(texts, _SUSPECT))
        if self.dropped and several:
            found = pc.or_(found, pc.match_substring(texts, "/"))
        return found

    def _fault_of(self, part: PathPart, text: str, several: bool) -> str | None:
        wrong = self._unusable(text)
        if wrong is None and self.dropped and several and part.slashes is None and "/" in text:
            wrong = "files do not hold the partition columns, and with a slash the path does not tell where one ends"
        return None if several and wrong == _RESERVED else wrong

    def _unusable(self, path: str) -> str | None:
        if not path:
            return None
        if _CONTROL.search(path):
            return "it has a control character or a backslash"
        if path == _ALL_PARTITIONS:
            return _RESERVED
        steps = path.split("/")
        begun = {f"{part.field}=" for part in self.path.parts} if self.path.hive_style else set[str]()
        if not all(steps) or any(step in begun for step in steps[:-1]):
            return "it begins or ends with a slash, or has two in a row"
        for step in steps:
            if step in (".", ".."):
                return f"the folder {step!r} is another one"
            if step.lower().startswith(".hoodie"):
                return "names that begin with .hoodie are the table's own"
            if len(step.encode()) > _NAME_BYTES:
                return f"a folder's name may have {_NAME_BYTES} bytes, this has {len(step.encode())}"
        return None


_RESERVED = f"{_ALL_PARTITIONS} is a name of the metadata table's"


def _shown(value: str) -> str:
    return repr(value if len(value) <= 80 else value[:80] + "...")


def _refused(what: str, why: str, context: dict[str, object]) -> InvalidRecord:
    return InvalidRecord(
        f"{what}, which cannot be a partition path: {why}",
        hint="change the value, or partition by another column; a table made with"
        " hoodie.datasource.write.partitionpath.urlencode=true encodes slashes, backslashes and control characters",
        context=context,
    )
