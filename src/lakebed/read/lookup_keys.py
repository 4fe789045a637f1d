"""The keys that a caller asks for, as key texts and partition paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from lakebed.errors import InvalidOption
from lakebed.read.table_keys import key_generator_of, rows_may_stay
from lakebed.slices.keys import table_keys
from lakebed.slices.snapshot import Snapshot


class KeyText:
    """Record keys as the table stores them (`_hoodie_record_key`), for `get`, `exists`, `locate` and `delete`.

    >>> import lakebed
    >>> len(lakebed.KeyText(["id:1,code:x"]))
    1
    """

    def __init__(self, keys: Any) -> None:
        try:
            listed = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(list(keys), pa.string())
        except (pa.ArrowException, TypeError) as error:
            raise InvalidOption(f"KeyText takes a list of texts: {error}") from error
        self.keys: pa.Array = plain_texts(listed)

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class LookupKeys:
    """Keys to look for: `texts` one for each key asked (null: no such key can exist), `partitions` the partition path
    of each where the caller gave the partition columns, `fields` the columns that the keys are made of, unless stored
    key text was given."""

    texts: pa.Array
    partitions: pa.Array | None = None
    fields: pa.Table | None = None

    def where(self, chosen: pa.Array) -> LookupKeys:
        """The keys that a mask marks."""
        parts = (self.texts, self.partitions, self.fields)
        return LookupKeys(*(None if part is None else part.filter(chosen) for part in parts))


def wanted_keys(snapshot: Snapshot, keys: Any) -> LookupKeys:
    """Key texts of what the user gave, and partition paths where the caller's table has the partition columns and
    they tell where a row is."""
    config = snapshot.config
    if isinstance(keys, KeyText):
        return LookupKeys(keys.keys)
    if not config.key_fields:
        raise InvalidOption(
            f"the keys of table {config.name!r} are made by the writer, not from columns",
            hint="give stored keys: lakebed.KeyText([...])",
        )
    schema = snapshot.schema
    table = _key_table(keys, tuple(config.key_fields), schema)
    texts = plain_texts(table_keys(snapshot).key_text_of(table, schema))
    return LookupKeys(texts, _partitions_of(snapshot, table), table)


def _partitions_of(snapshot: Snapshot, table: pa.Table) -> pa.Array | None:
    config = snapshot.config
    fields = [f.partition(".")[0] for f in config.partition_fields]
    if not fields or any(f not in table.column_names for f in fields) or rows_may_stay(snapshot.storage, config):
        return None
    generator = key_generator_of(config)
    columns = [
        table.column(f).cast(snapshot.schema.field(f).type) if f in snapshot.schema.names else table.column(f)
        for f in fields
    ]
    plain = pa.Table.from_arrays(columns, names=fields).combine_chunks()
    paths = [generator.partition_path.arrow(b) for b in plain.to_batches()]
    return pa.concat_arrays(paths) if paths else pa.array([], pa.string())


def is_keys(what: Any) -> bool:
    """Whether this is a collection or a column of keys, and no table of rows."""
    if isinstance(what, KeyText | list | tuple | set | frozenset):
        return True
    return hasattr(what, "__array__") and not hasattr(what, "columns") and not hasattr(what, "schema")


def _key_table(keys: Any, fields: tuple[str, ...], schema: pa.Schema) -> pa.Table:
    if isinstance(keys, pa.RecordBatch):
        return pa.Table.from_batches([keys])
    if isinstance(keys, pa.Table):
        return keys
    if hasattr(keys, "__arrow_c_stream__"):
        try:
            keys = pa.chunked_array(keys)  # of a frame its rows as structs, of a column (a series) its values
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidOption(f"these keys are no columns: {error}", hint="give a column one type") from None
        if pa.types.is_struct(keys.type):
            return pa.Table.from_struct_array(keys)
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        columns: list[Any] = [keys]
    else:
        if isinstance(keys, str | bytes):
            keys = [keys]
        if isinstance(keys, Mapping) or not isinstance(keys, Iterable) or getattr(keys, "ndim", 1) == 0:
            raise InvalidOption(
                f"keys are given as a collection, not as {type(keys).__name__}",
                hint="give a list of keys, of tuples, a table with the key columns, or lakebed.KeyText([...])",
            )
        listed = list(cast("Iterable[Any]", keys))
        columns = [listed] if len(fields) == 1 else _transposed(listed, fields)
    if len(columns) != len(fields):
        raise InvalidOption(
            f"keys of one value given, but the record key is made of {', '.join(fields)}",
            hint="give tuples in that order, or a table with these columns",
        )
    return pa.table({f: _typed(c, f, schema) for f, c in zip(fields, columns, strict=True)})


def _transposed(keys: list[Any], fields: tuple[str, ...]) -> list[list[Any]]:
    if any(not isinstance(k, tuple | list) or len(k) != len(fields) for k in keys):
        raise InvalidOption(
            f"every key has to be a tuple of {len(fields)} values: {', '.join(fields)}",
            hint="or give a table with these columns, or lakebed.KeyText([...])",
        )
    return [[k[i] for k in keys] for i in range(len(fields))]


def _typed(values: Any, field: str, schema: pa.Schema) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    type_ = schema.field(field).type if field in schema.names else None
    try:
        return pa.array(values, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InvalidOption(
            f"these keys do not fit the key column {field!r} of type {type_}: {error}",
            hint="give values of the column's type, or stored keys as lakebed.KeyText([...])",
        ) from None


def plain_texts(values: Any) -> pa.Array:
    """A column of texts in whatever form as one plain string array."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if pa.types.is_string(values.type) else values.cast(pa.string())
