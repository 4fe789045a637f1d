"""ORC base files, as Hudi writes them: read by stripes, which take the place of row groups."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import UnsupportedFeature
from lakebed.format.base_file import AVRO_SCHEMA_KEY, Footer
from lakebed.format.base_formats import GroupSize, GroupSizes, batches_of
from lakebed.schema.arrow import plain_type
from lakebed.schema.avro import avro_to_arrow
from lakebed.schema.conversion import can_cast, cast_column
from lakebed.storage.base import Storage

_SCHEMA_KEY = "orc.avro.schema"


class OrcFormat:
    """The format of ORC files."""

    name = "ORC"

    @contextmanager
    def open(self, storage: Storage, path: str, size: int | None) -> Generator[Any]:
        """The open file."""
        with storage.open_input(path, size) as source:
            if size is not None and source.size() != size:
                raise ValueError(f"it has {source.size()} bytes and should have {size}")
            yield _opened(source)

    @contextmanager
    def open_bytes(self, data: Any) -> Generator[Any]:
        """The file with this content, open."""
        yield _opened(pa.BufferReader(data))

    def footer(self, source: Any, path: str) -> Footer:
        """The footer of an open file: the columns are those of the Avro schema that Hudi stores in it."""
        stored = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in source.metadata.items()}
        avro = stored.pop(_SCHEMA_KEY, "")
        # Arrow shows the rows of a stripe only when it is read: of a column that takes few bytes
        first, stripes = source.schema.names[:1], range(source.nstripes)
        counts = [source.nrows] if len(stripes) == 1 else [source.read_stripe(n, first).num_rows for n in stripes]
        size = source.content_length // max(1, source.nstripes)
        groups = [GroupSize(count, size) for count in counts]
        return Footer(
            path=path,
            schema=_schema_of(source.schema, avro_to_arrow(avro) if avro else pa.schema([])),
            key_values=stored | ({AVRO_SCHEMA_KEY: avro} if avro else {}),
            rows=source.nrows,
            row_groups=len(groups),
            metadata=GroupSizes(groups, source.file_footer_length),
        )

    def rows(self, source: Any, footer: Footer) -> OrcRows:
        """The reader of an open file's rows."""
        return OrcRows(source, footer)


ORC = OrcFormat()


def _opened(source: Any) -> Any:
    try:
        import pyarrow.orc as orc
    except ImportError as error:
        raise UnsupportedFeature(
            "this build of pyarrow has no reader of ORC files", hint="install pyarrow from PyPI or conda-forge"
        ) from error
    return orc.ORCFile(source)


@dataclass(frozen=True)
class OrcRows:
    """Reads the stripes of an open file; one stripe is in memory at a time."""

    source: Any
    footer: Footer

    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int], columns: Sequence[str], use_threads: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the stripes in batches."""
        for number in row_groups:
            yield from batches_of(self.read_row_group(number, columns), batch_size)

    def read_row_group(self, number: int, /, columns: Sequence[str], use_threads: bool = False) -> pa.Table:
        """The rows of one stripe."""
        if not columns:
            count = self.footer.metadata.row_group(number).num_rows
            return pa.Table.from_struct_array(pa.nulls(count, pa.struct([])))
        stored = self.source.read_stripe(number, columns=list(columns))
        fields = [self.footer.schema.field(name) for name in columns]
        arrays = [cast_column(stored.column(f.name), f.type) for f in fields]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _schema_of(stored: pa.Schema, written: pa.Schema) -> pa.Schema:
    """The columns of a file in the types that its writer meant: ORC has one timestamp type, and no bytes of a fixed
    length."""
    written_fields: Mapping[str, pa.Field] = {field.name: field for field in written}
    fields: list[pa.Field] = []
    for field in stored:
        kind = plain_type(field.type)
        if pt.is_timestamp(kind):
            kind = pa.timestamp("us", kind.tz)
        if field.name in written_fields and can_cast(field.type, written_fields[field.name].type):
            kind = written_fields[field.name].type
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)
