"""Arrow schemas as lakebed keeps them: the few types Hudi tables hold, one spelling for each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.model import ALL_META_COLUMNS, META_COLUMNS, OPERATION_COLUMN
from lakebed.schema.logical_types import (
    HUDI_TYPE,
    descriptor_of,
    is_declared_vector,
    is_vector,
    parse_vector,
    refuse_inside,
    struct_avro,
    takes_vectors,
    unknown_descriptor,
    vector_name,
)
from lakebed.schema.plain_arrow import is_list

MAX_PRECISION = 38
# The digits of `decimal256`: values are rescaled in it, since a cast of `decimal128` may wrap instead of fail.
MAX_WIDE_PRECISION = 76
AVRO_TYPE = b"lakebed.avro.type"
"""Field metadata: the Avro type (JSON) of a column that Arrow alone would not give back (enum, uuid, fixed)."""

_RENAMED: dict[pa.DataType, pa.DataType] = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time32("ms"),
    pa.time64("ns"): pa.time64("us"),
}
_STORED_TYPES = frozenset(
    {
        pa.null(),
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.time32("ms"),
        pa.time64("us"),
    }
)


def with_meta(schema: pa.Schema, *, operation: bool = False) -> pa.Schema:
    """The schema with the five meta columns in front (those it has already are moved there), and with `operation` the
    column of operations after them.

    >>> with_meta(pa.schema([("id", pa.string())])).names[-2:]
    ['_hoodie_file_name', 'id']
    """
    names = (*META_COLUMNS, OPERATION_COLUMN) if operation else META_COLUMNS
    return pa.schema([*[pa.field(name, pa.string()) for name in names], *without_meta(schema)])


def without_meta(schema: pa.Schema) -> pa.Schema:
    """The data columns alone.

    >>> without_meta(with_meta(pa.schema([("id", pa.string())]))).names
    ['id']
    """
    return pa.schema([field for field in schema if field.name not in ALL_META_COLUMNS])


def normalise(schema: pa.Schema) -> pa.Schema:
    """The schema in the types that a table stores: small integers as int32, no large, view, dictionary or fixed-size
    layouts, timestamps in micro- or milliseconds and in UTC if they have a zone. Columns of type null are unchanged:
    `refuse_untyped` checks for these when a table's columns are made.

    A field with the metadata `hudi_type` has Hudi's type of that name (VECTOR, BLOB, VARIANT), and only such a list of
    fixed size stays one.

    Raises `SchemaConflict`, naming the column, for types that Hudi's format cannot hold, for names that differ in case
    only, and for types that nest deeper than readers of Parquet files go.

    >>> normalise(pa.schema([("n", pa.int16()), ("at", pa.timestamp("ns", "Asia/Tokyo"))])).types
    [DataType(int32), TimestampType(timestamp[us, tz=UTC])]
    """
    check_names([field.name for field in schema], "")
    for field in schema:
        check_levels(field)
    return pa.schema([_normal_field(field, field.name) for field in schema])


# Arrow opens Parquet files whose schema has up to 100 levels, the file's own among them.
_MAX_LEVELS = 90


def check_levels(field: pa.Field) -> None:
    """Raise `SchemaConflict` for a column that nests deeper than files are read."""
    try:
        levels = _levels(field.type) if pt.is_nested(field.type) else 0
    except RecursionError:
        raise too_deep(field.name) from None
    if levels > _MAX_LEVELS:
        raise too_deep(field.name, levels)


def too_deep(column: str, levels: int | None = None) -> SchemaConflict:
    """The error for a column that nests too deep; `levels` is None if the depth is unknown."""
    return SchemaConflict(
        f"column {column!r} nests {'too many' if levels is None else levels} levels deep, and readers of Parquet files"
        " go about 100 deep",
        hint=f"At most {_MAX_LEVELS} levels are stored: a struct is one, a list or a map two. Store what is inside as"
        " JSON text.",
        context={"column": column, "levels": levels},
    )


def _levels(kind: pa.DataType) -> int:
    """The levels of a type's tree in a Parquet file."""
    if pt.is_dictionary(kind):
        return _levels(kind.value_type)
    if not pt.is_nested(kind):
        return 1
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    # a map has a struct of key and value inside
    return (1 if pt.is_struct(kind) or pt.is_map(kind) else 2) + max(map(_levels, inner), default=0)


# Types whose storage holds their values; what the bytes or numbers of others mean is known to who made them.
_EXTENSIONS = frozenset(
    (
        *("arrow.uuid", "arrow.json", "arrow.bool8", "arrow.fixed_shape_tensor"),
        *("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2"),  # NumPy's matrices in a Dataset, as lists
    )
)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without differences of Arrow's memory layout: views, large offsets and dictionaries, which a Parquet
    file names but does not store.

    >>> plain_type(pa.list_(pa.string_view())), plain_type(pa.dictionary(pa.int8(), pa.large_string()))
    (ListType(list<item: string>), DataType(string))
    """
    if pt.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind):
        return pa.binary()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pt.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    return kind


def normal_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The stored type for a type; see `normalise`. `column` is the dotted path for errors."""
    if kind in _STORED_TYPES:
        return kind
    if kind in _RENAMED:
        return _RENAMED[kind]
    if pt.is_timestamp(kind):
        return pa.timestamp("ms" if kind.unit == "ms" else "us", "UTC" if kind.tz else None)
    if pt.is_decimal(kind):
        return _normal_decimal(kind, column)
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return normal_type(kind.value_type, column)
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if is_declared_vector(kind):
        return kind
    if pt.is_struct(kind):
        fields = list(kind)
        if not fields:
            raise SchemaConflict(
                f"column {column} is a struct without fields", hint="Drop the column or add a field to it."
            )
        check_names([field.name for field in fields], column)
        return pa.struct([_inner_field(field, f"{column}.{field.name}") for field in fields])
    if pt.is_map(kind):
        return _normal_map(kind, column)
    if is_list(kind):
        item = _inner_field(kind.value_field, f"{column}.element")
        return list_of(item.type, nullable=item.nullable, metadata=item.metadata)
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name in _EXTENSIONS:
        return normal_type(kind.storage_type, column)
    if isinstance(kind, pa.BaseExtensionType):
        _refuse_types_of_pandas(kind.extension_name, column)
    raise SchemaConflict(
        f"column {column} has type {kind}, which a Hudi table cannot store",
        hint="Cast it to one of boolean, int, long, float, double, decimal, string, binary, date, timestamp, "
        "struct, array or map, or leave it out.",
        context={"column": column, "type": str(kind)},
    )


def _refuse_types_of_pandas(extension: str, column: str) -> None:
    """Raise `SchemaConflict` for a type that only pandas has. A Parquet file that pandas wrote names it, and if pandas
    is not imported Arrow reads the stored values: for a period the number of months or days since 1970."""
    if not extension.startswith("pandas."):
        return
    ways = {"pandas.period": f"give times (frame[{column!r}].dt.to_timestamp()) or texts (.astype(str))"}
    raise SchemaConflict(
        f"column {column} has the type {extension}, whose values mean nothing outside of pandas",
        hint=ways.get(extension, "give its parts as columns of their own, or texts (.astype(str))"),
        context={"column": column, "type": extension},
    )


def refuse_untyped(schema: pa.Schema) -> None:
    """Raise `SchemaConflict` for columns whose type is, or contains, Arrow's type null: they have no type in which they
    could be stored."""
    untyped = [field for field in schema if has_untyped(field.type)]
    if untyped:
        first, *others = untyped
        more = f" (likewise {', '.join(field.name for field in others)})" if others else ""
        raise SchemaConflict(
            f"column {first.name} has type {first.type}: it holds nothing but null, and the table does not know it"
            + more,
            hint="Cast it to the type that it is to have, or leave it out. For files of CSV or JSON,"
            f" DataFiles(path, columns={{{first.name!r}: 'string'}}) names the type.",
            context={"column": first.name, "type": str(first.type), "columns": [field.name for field in untyped]},
        )


def has_untyped(kind: pa.DataType) -> bool:
    """Whether a type is null, or has null inside.

    >>> has_untyped(pa.list_(pa.null())), has_untyped(pa.int32())
    (True, False)
    """
    return pt.is_null(kind) or any(has_untyped(kind.field(n).type) for n in range(kind.num_fields))


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are texts, in any of their forms."""
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def is_repeated(kind: pa.DataType) -> bool:
    """Whether a row can have several values of a leaf of this type.

    >>> is_repeated(pa.struct([("a", pa.list_(pa.int32()))])), is_repeated(pa.struct([("a", pa.int32())]))
    (True, False)
    """
    if is_list(kind) or pt.is_map(kind):
        return True
    return pt.is_struct(kind) and any(is_repeated(kind.field(number).type) for number in range(kind.num_fields))


def list_of(item: pa.DataType, *, nullable: bool = True, metadata: dict[bytes, bytes] | None = None) -> pa.DataType:
    """A list type with the element name that Parquet and Spark use."""
    return pa.list_(pa.field("element", item, nullable, metadata))


def map_of(item: pa.DataType, *, nullable: bool = True, metadata: dict[bytes, bytes] | None = None) -> pa.DataType:
    """A map type with string keys, the only kind that Avro has."""
    return pa.map_(pa.field("key", pa.string(), False), pa.field("value", item, nullable, metadata))


def _normal_field(field: pa.Field, column: str) -> pa.Field:
    noted = (field.metadata or {}).get(AVRO_TYPE)
    if descriptor := descriptor_of(field):
        return _logical_field(field, descriptor, noted, column)
    # a named type of fixed length keeps it: the length is part of the noted Avro type
    kind = field.type if noted and pt.is_fixed_size_binary(field.type) else normal_type(field.type, column)
    if field.metadata:
        _refuse_types_of_pandas(field.metadata.get(b"ARROW:extension:name", b"").decode(), column)
    return pa.field(field.name, kind, field.nullable, {AVRO_TYPE: noted} if noted else None)


def _inner_field(field: pa.Field, column: str) -> pa.Field:
    """The stored form of a field inside another type, where no vector can be."""
    inner = _normal_field(field, column)
    refuse_inside(inner.type, field, column)
    return inner


def _logical_field(field: pa.Field, descriptor: str, noted: bytes | None, column: str) -> pa.Field:
    """The stored form of a column with one of Hudi's logical types. Raises `SchemaConflict` if its values cannot be of
    that type."""
    kind = parse_vector(descriptor)
    if kind is not None:
        if not is_storage_of(field.type, kind):
            raise _other_storage(field, descriptor, column, f"lists of {kind.list_size} numbers, or bytes")
        return pa.field(field.name, kind, field.nullable, {HUDI_TYPE: vector_name(kind).encode()})
    avro = struct_avro(descriptor)
    if avro is None:
        raise unknown_descriptor(descriptor, column)
    names = [part["name"] for part in avro["fields"]]
    if not pt.is_struct(field.type) or sorted(part.name for part in field.type) != sorted(names):
        raise _other_storage(field, descriptor, column, f"structs of {', '.join(names)}")
    metadata = {AVRO_TYPE: noted or json.dumps(avro, separators=(",", ":")).encode(), HUDI_TYPE: descriptor.encode()}
    return pa.field(field.name, normal_type(field.type, column), field.nullable, metadata)


def is_storage_of(kind: pa.DataType, vector: pa.DataType) -> bool:
    """Whether a column of this type, which its metadata calls a vector, can hold such vectors."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return takes_vectors(kind, vector)


def _other_storage(field: pa.Field, descriptor: str, column: str, storage: str) -> SchemaConflict:
    return SchemaConflict(
        f"column {column} is {descriptor} by its metadata hudi_type, and its type is {field.type}",
        hint=f"values of this type are {storage}; give these, or leave the metadata out",
        context={"column": column, "type": str(field.type), "hudi_type": descriptor},
    )


def _normal_decimal(kind: pa.DataType, column: str) -> pa.DataType:
    if kind.precision > MAX_PRECISION or kind.scale < 0 or kind.scale > kind.precision:
        raise SchemaConflict(
            f"column {column} has type {kind}; a decimal has at most {MAX_PRECISION} digits and a scale between "
            "0 and its precision",
            hint=f"Cast it, for example to decimal({MAX_PRECISION}, {min(max(kind.scale, 0), MAX_PRECISION)}).",
            context={"column": column, "type": str(kind)},
        )
    return pa.decimal128(kind.precision, kind.scale)


def _normal_map(kind: pa.DataType, column: str) -> pa.DataType:
    key = normal_type(kind.key_type, f"{column}.key")
    if not pt.is_string(key):
        raise SchemaConflict(
            f"column {column} is a map with keys of type {kind.key_type}; Hudi tables hold maps with string keys only",
            hint="Cast the keys to string.",
            context={"column": column, "type": str(kind)},
        )
    item = _inner_field(kind.item_field, f"{column}.value")
    return map_of(item.type, nullable=item.nullable, metadata=item.metadata)


def check_names(names: list[str], parent: str = "") -> None:
    """Raise `SchemaConflict` for columns without a name, and for two of one name."""
    where = f" in {parent}" if parent else ""
    first_names: dict[str, str] = {}
    for name in names:
        if not name:
            raise SchemaConflict(f"a column{where} has no name", hint="Give every column a name.")
        first = first_names.get(name.lower())
        if first is not None:
            repetition = f"twice the name {name}" if first == name else f"the names {first} and {name}"
            raise SchemaConflict(
                f"the columns{where} hold {repetition}; Spark and Hudi do not distinguish upper from lower case",
                hint="Rename one of them.",
                context={"column": name},
            )
        first_names[name.lower()] = name


def normalise_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns, matched by name, in the types of `schema` (`normalise` of the batch's own, or a subset).

    Times finer than the schema's unit are cut off, as Spark does. Raises `InvalidRecord` for a value that
    does not fit, and for a null in a column that allows none.

    >>> normalise_batch(pa.record_batch({"n": pa.array([1], pa.int8())}), pa.schema([("n", pa.int32())]))["n"].type
    DataType(int32)
    """
    arrays = [_cast(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    if not array.type.equals(field.type):
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        try:
            options = pc.CastOptions(target_type=field.type, allow_time_truncate=True)
            array = array.cast(options=options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRecord(
                f"column {field.name} holds a value that does not fit {field.type}: {error}",
                hint="Correct the value or cast the column.",
                context={"column": field.name},
            ) from error
    check_nulls(array, field)
    return array


def check_nulls(array: pa.Array, field: pa.Field) -> None:
    """Raise `InvalidRecord` if a column that allows no null has one."""
    if not field.nullable and array.null_count:
        raise InvalidRecord(
            f"column {field.name} is declared not null and holds {array.null_count} null value(s)",
            hint="Fill them, or declare the column nullable.",
            context={"column": field.name},
        )


def without_field_metadata(field: pa.Field) -> pa.Field:
    """The field without metadata, also in its parts: Arrow stores a Parquet file's ids of columns in it."""
    kind = field.type
    if pt.is_map(kind):
        kind = pa.map_(without_field_metadata(kind.key_field), without_field_metadata(kind.item_field))
    elif pt.is_list(kind):
        kind = pa.list_(without_field_metadata(kind.value_field))
    elif pt.is_large_list(kind):
        kind = pa.large_list(without_field_metadata(kind.value_field))
    elif pt.is_struct(kind):
        kind = pa.struct([without_field_metadata(part) for part in kind])
    return pa.field(field.name, kind, field.nullable)


def leaf_paths(schema: Iterable[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    """The Parquet path (`a.list.element`, `m.key_value.key`) and the type of every leaf column, in file order."""
    for field in schema:
        yield from _leaves(field.name, field.type)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pt.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pt.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif is_list(kind) and not is_vector(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
