"""`read_blob(column)` in statements, as real Hudi has it: the bytes of a BLOB column, in the table or elsewhere."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from sqlglot import TokenType

from lakebed.errors import InvalidOption, LakebedError
from lakebed.read.blobs import BlobReader, blob_column
from lakebed.read.scan import Scan
from lakebed.schema.logical_types import BLOB, is_blob
from lakebed.statements.sources import Source
from lakebed.statements.statement import Statement
from lakebed.storage.base import StorageSpec, parse_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_BLOB: Final = "read_blob"
_numbers = count()


@dataclass(frozen=True, slots=True)
class BlobCall:
    """A call of `read_blob` in a statement: the place of its name in the text, and the column."""

    start: int
    end: int
    column: str


def blob_calls(statement: Statement) -> list[BlobCall]:
    """The calls of a statement. Other uses of the name, as DuckDB's own function of files, are none."""
    return list(_calls(statement))


def _calls(statement: Statement) -> Iterator[BlobCall]:
    tokens = statement.tokens
    for at, token in enumerate(tokens):
        if token.text.lower() != READ_BLOB or at + 3 >= len(tokens):
            continue
        end = at + 2
        while end + 2 < len(tokens) and tokens[end + 1].token_type is TokenType.DOT:
            end += 2
        closes = end + 1 < len(tokens) and tokens[end + 1].token_type is TokenType.R_PAREN
        if tokens[at + 1].token_type is TokenType.L_PAREN and closes and statement.is_name(end):
            yield BlobCall(token.start, token.end + 1, tokens[end].text)


def spec_of(call: BlobCall, sources: Sequence[Source]) -> StorageSpec:
    """The storage of the table whose rows a call reads. Raises `InvalidOption` for a column that is no BLOB, and if the
    rows may be those of several tables with different storage options."""
    scans = [source.rows for source in sources if isinstance(source.rows, Scan)]
    named = [(scan, f) for scan in scans for f in scan.available if f.name.lower() == call.column.lower()]
    if named and not any(is_blob(field) for _, field in named):
        blob_column(call.column, named[0][0].available)  # which raises
    blobs = [scan for scan in scans if any(is_blob(field) for field in scan.available)]
    if len({_access(scan) for scan in blobs}) > 1:
        blobs = [s for s in blobs if any(is_blob(f) and f.name.lower() == call.column.lower() for f in s.available)]
    if len({_access(scan) for scan in blobs}) > 1:
        raise InvalidOption(
            f"{READ_BLOB}({call.column}) may read rows of several tables, which have different storage options",
            hint="read the blobs of one of them first",
            context={"column": call.column},
        )
    return blobs[0].snapshot.storage.spec if blobs else StorageSpec("/")


def _access(scan: Scan) -> tuple[str, tuple[tuple[str, str], ...]]:
    spec = scan.snapshot.storage.spec
    return parse_uri(spec.uri).scheme, tuple(sorted(spec.options.items()))


def duckdb_functions(
    calls: Sequence[BlobCall], sources: Sequence[Source], connection: Any, errors: list[Exception]
) -> tuple[Mapping[tuple[int, int], str], Callable[[], None]]:
    """The names of functions in place of those of the calls, by their places, and what drops the functions. `errors`
    gets what a function raises."""
    import duckdb

    reference = duckdb.struct_type(
        {
            "external_path": duckdb.sqltype("VARCHAR"),
            "offset": duckdb.sqltype("BIGINT"),
            "length": duckdb.sqltype("BIGINT"),
            "managed": duckdb.sqltype("BOOLEAN"),
        }
    )
    kind = duckdb.struct_type(
        {"type": duckdb.sqltype("VARCHAR"), "data": duckdb.sqltype("BLOB"), "reference": reference}
    )
    names: dict[tuple[int, int], str] = {}
    for call in calls:
        name = f"__lakebed_{READ_BLOB}_{next(_numbers)}"
        read = _reporting(BlobReader(spec_of(call, sources), call.column), errors)
        connection.create_function(name, read, [kind], duckdb.sqltype("BLOB"), type="arrow", null_handling="special")
        names[call.start, call.end] = name

    def drop() -> None:
        for name in names.values():
            connection.remove_function(name)

    return names, drop


def _reporting(reader: BlobReader, errors: list[Exception]) -> Callable[[Any], pa.Array]:
    """A function that gives the bytes of a column of blobs, and notes its error."""

    def read(blobs: Any) -> pa.Array:
        try:
            return pa.array(reader.values(blobs, lambda _: "a row"), pa.binary())
        except LakebedError as error:
            errors.append(error)
            raise

    return read


def spark_functions(
    calls: Sequence[BlobCall], sources: Sequence[Source], spark: SparkSession
) -> Mapping[tuple[int, int], str]:
    """The names of functions of a session in place of those of the calls, by their places."""
    names: dict[tuple[int, int], str] = {}
    for call in calls:
        spec = spec_of(call, sources)
        text = repr((spec.uri, sorted(spec.options.items()), call.column.lower()))
        name = f"lakebed_{READ_BLOB}_{zlib.crc32(text.encode()):08x}"
        register_on_spark(spark, name, BlobReader(spec, call.column))
        names[call.start, call.end] = name
    return names


def register_on_spark(spark: SparkSession, name: str, reader: BlobReader) -> None:
    """Register a function of a session that gives the bytes of a blob."""
    spark.udf.register(name, partial(_of_row, reader), "binary")


def _of_row(reader: BlobReader, blob: Any) -> bytes | None:
    """The bytes of a blob in a task of Spark."""
    if blob is None:
        return None
    column = pa.array([blob.asDict(recursive=True)], BLOB)
    return next(reader.values(column, lambda _: "a row"))
