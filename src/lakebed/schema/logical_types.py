"""Hudi's logical types of columns, VECTOR, BLOB and VARIANT: their names, their Arrow and Avro forms, and the bytes of
vectors.

In Arrow a vector is a list of fixed size, in a file it is a value of fixed length. A stored schema has no other lists
of fixed size (`lakebed.schema.arrow.normalise` makes plain lists of them), so the type alone shows a vector. Blobs and
variants are structs; the metadata of their fields names them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.config.arguments import is_integer
from lakebed.errors import CorruptFile, InvalidRecord, SchemaConflict
from lakebed.schema.plain_arrow import is_list
from lakebed.schema.variant_bytes import are_variants

HUDI_TYPE = b"hudi_type"
"""The key of field metadata, in Arrow and on Spark, by which Hudi names the logical type of a column."""
VECTOR_COLUMNS_KEY = "hoodie.vector.columns"
"""The key of a base file's footer that names its vectors, for readers of that file alone."""

# Metadata of a vector's elements, by which a caller's type is a vector and not any list of fixed size.
_MARK = b"lakebed.vector"
Element = Literal["float", "double", "int8"]
_ELEMENTS: dict[str, pa.DataType] = {"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "INT8": pa.int8()}
_NAMES = {kind: name for name, kind in _ELEMENTS.items()}
_VECTOR = re.compile(r"VECTOR\s*\(\s*(\d+)\s*(?:,\s*(\w+)\s*)?(?:,\s*FIXED_BYTES\s*)?\)")
# A row of a Parquet file has at most this many bytes in one value.
_MAX_BYTES = (1 << 31) - 1
_HINT = "Types are VECTOR(dimension), VECTOR(dimension, DOUBLE), VECTOR(dimension, INT8), BLOB and VARIANT."


def vector(dimension: int, element: Element = "float") -> pa.DataType:
    """The Arrow type of a vector column (Hudi's VECTOR): a list of `dimension` floats, doubles or int8 numbers.

    It is the type of a field of a table's schema, and the type of arrays of vectors. What a table returns has the
    metadata `hudi_type` on the field, as Hudi names the type (`VECTOR(768)`); a field of a list with this metadata is a
    vector, too. Raises `SchemaConflict` for an element that no vector has, and for a dimension below 1.

    >>> import lakebed, pyarrow as pa
    >>> schema = pa.schema([("id", pa.string()), ("embedding", lakebed.vector(3))])
    >>> t = lakebed.create("memory://docs/vectors", schema, key="id")
    >>> _ = t.upsert([{"id": "a", "embedding": [0.5, 1.0, -2.0]}])
    >>> t.get(["a"])["embedding"].type
    FixedSizeListType(fixed_size_list<element: float>[3])
    """
    name = str(element).upper()
    kind = _ELEMENTS.get("INT8" if name == "BYTE" else name)
    if kind is None:
        raise SchemaConflict(
            f"a vector has no elements of type {element!r}", hint="take 'float', 'double' or 'int8'", context={}
        )
    if not is_integer(dimension) or not 0 < dimension * _width(kind) <= _MAX_BYTES:
        raise SchemaConflict(f"a vector cannot have the dimension {dimension!r}", hint="give a whole number above 0")
    return pa.list_(pa.field("element", kind, metadata={_MARK: b"true"}), int(dimension))


def is_vector(kind: pa.DataType) -> bool:
    """Whether a type of a stored schema is a vector.

    >>> is_vector(vector(4)), is_vector(pa.list_(pa.float32()))
    (True, False)
    """
    return pt.is_fixed_size_list(kind) and kind.value_type in _NAMES


def is_declared_vector(kind: pa.DataType) -> bool:
    """Whether the type of a caller's column was made by `vector`, and is not any list of fixed size."""
    return is_vector(kind) and _MARK in (kind.value_field.metadata or {})


def vector_name(kind: pa.DataType) -> str:
    """Hudi's name of a vector's type.

    >>> vector_name(vector(4)), vector_name(vector(4, "int8"))
    ('VECTOR(4)', 'VECTOR(4, INT8)')
    """
    element = "" if pt.is_float32(kind.value_type) else f", {_NAMES[kind.value_type]}"
    return f"VECTOR({kind.list_size}{element})"


def type_text(kind: pa.DataType) -> str:
    """The name of a type in messages: Hudi's name of a vector, else Arrow's name."""
    return vector_name(kind) if is_vector(kind) else str(kind)


def _width(element: pa.DataType) -> int:
    return element.bit_width // 8


def vector_size(kind: pa.DataType) -> int:
    """The number of bytes that a vector of this type takes in a file."""
    return kind.list_size * _width(kind.value_type)


def parse_vector(text: str) -> pa.DataType | None:
    """The vector type with this name, in any case; None for another text. Raises `SchemaConflict` for a vector that
    cannot be.

    >>> parse_vector("vector(4, double)"), parse_vector("int")
    (FixedSizeListType(fixed_size_list<element: double>[4]), None)
    """
    match = _VECTOR.fullmatch(text.strip().upper())
    element: Any = (match[2] or "float").lower() if match else ""
    return vector(int(match[1]), element) if match else None


_REFERENCE = {
    "type": "record",
    "name": "reference",
    "fields": [
        {"name": "external_path", "type": "string"},
        {"name": "offset", "type": ["null", "long"]},
        {"name": "length", "type": ["null", "long"]},
        {"name": "managed", "type": "boolean"},
    ],
}
_BLOB = {
    "type": "record",
    "name": "blob",
    "namespace": "",
    "logicalType": "blob",
    "fields": [
        {"name": "type", "type": {"type": "enum", "name": "blob_storage_type", "symbols": ["INLINE", "OUT_OF_LINE"]}},
        {"name": "data", "type": ["null", "bytes"], "default": None},
        {"name": "reference", "type": ["null", _REFERENCE], "default": None},
    ],
}
_VARIANT = {
    "type": "record",
    "name": "variant",
    "namespace": "",
    "logicalType": "variant",
    "fields": [
        {"name": "metadata", "type": "bytes", "doc": "Variant metadata component"},
        {"name": "value", "type": "bytes", "doc": "Variant value component"},
    ],
}
_STRUCTS: dict[str, Mapping[str, Any]] = {"BLOB": _BLOB, "VARIANT": _VARIANT}
# As for vectors: by this metadata of its fields a caller's struct is declared to be a variant.
_VARIANT_MARK = b"lakebed.variant"
VARIANT = pa.struct([pa.field(n, pa.binary(), False, {_VARIANT_MARK: b"true"}) for n in ("metadata", "value")])
"""The Arrow type of a VARIANT column, in the form in which a caller declares one."""
_BLOB_MARK = b"lakebed.blob"
REFERENCE = pa.struct(
    [
        pa.field("external_path", pa.string(), False),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("managed", pa.bool_(), False),
    ]
)
"""The Arrow type of a BLOB's reference to bytes of another file."""
BLOB = pa.struct(
    [
        pa.field("type", pa.string(), False, {_BLOB_MARK: b"true"}),
        pa.field("data", pa.binary()),
        pa.field("reference", REFERENCE),
    ]
)
"""The Arrow type of a BLOB column, in the form in which a caller declares one."""


def struct_avro(descriptor: str) -> Mapping[str, Any] | None:
    """The Avro record of a type that is stored as a struct, by its descriptor; None for another descriptor."""
    return _STRUCTS.get(descriptor.strip().upper())


def descriptor_of(field: pa.Field) -> str:
    """The descriptor of a field's logical type (`VECTOR(4)`, `BLOB`), from its metadata or its type; empty for a field
    without one."""
    noted = (field.metadata or {}).get(HUDI_TYPE)
    if noted:
        return noted.decode("utf-8", "replace").strip()
    if not pt.is_nested(field.type):
        return ""
    if is_declared_variant(field.type):
        return "VARIANT"
    if is_declared_blob(field.type):
        return "BLOB"
    return vector_name(field.type) if is_declared_vector(field.type) else ""


def logical_metadata(field: pa.Field) -> dict[str, str] | None:
    """The metadata that names the logical type of a column in results and in Spark; None for a column without one."""
    descriptor = descriptor_of(field)
    return {HUDI_TYPE.decode(): descriptor} if descriptor else None


def is_declared_variant(kind: pa.DataType) -> bool:
    """Whether the type of a caller's column is `VARIANT`, and not any struct of these two fields."""
    return pt.is_struct(kind) and kind.equals(VARIANT) and _VARIANT_MARK in (kind.field(0).metadata or {})


def is_variant(kind: pa.DataType | None) -> bool:
    """Whether a type is the struct of a variant: `metadata` and `value`, in any order."""
    return kind is not None and pt.is_struct(kind) and {part.name for part in kind} == {part.name for part in VARIANT}


def is_encoded(value: object) -> bool:
    """Whether a Python value is the struct of a variant's two binaries, or of their texts in base64."""
    return isinstance(value, Mapping) and set(cast("Mapping[str, object]", value)) == {part.name for part in VARIANT}


def as_variants(structs: Any, kind: pa.DataType = VARIANT) -> Any:
    """Structs with the two binaries of variants in another struct type of these."""
    if isinstance(structs, pa.ChunkedArray):
        return pa.chunked_array([as_variants(chunk, kind) for chunk in structs.chunks], kind)
    # a struct that is null has values, too, since its fields are declared not null
    fields = [pc.fill_null(structs.field(part.name), b"") for part in kind]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=structs.is_null())


def is_declared_blob(kind: pa.DataType) -> bool:
    """Whether the type of a caller's column is `BLOB`, also with long bytes, and not any struct of these fields."""
    return is_blob_struct(kind) and _BLOB_MARK in (kind.field("type").metadata or {})


def is_blob_struct(kind: pa.DataType) -> bool:
    """Whether a type has the fields of a BLOB.

    >>> is_blob_struct(BLOB), is_blob_struct(pa.struct([("type", pa.string())]))
    (True, False)
    """
    return pt.is_struct(kind) and {part.name for part in kind} == {part.name for part in BLOB}


def is_blob(field: pa.Field) -> bool:
    """Whether a column of a stored schema is a BLOB."""
    return (field.metadata or {}).get(HUDI_TYPE, b"").upper() == b"BLOB"


def is_variant_column(field: pa.Field) -> bool:
    """Whether a column of a stored schema is a VARIANT."""
    return (field.metadata or {}).get(HUDI_TYPE, b"").upper() == b"VARIANT"


def check_variants(values: Any, column: str) -> None:
    """Raise `InvalidRecord` for binaries that are no variant by their outer shape."""
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        parts = dict(zip((field.name for field in chunk.type), chunk.flatten(), strict=True))
        if not (are_variants(parts["metadata"], parts["value"]) | np.asarray(chunk.is_null())).all():
            raise InvalidRecord(
                f"column {column} is VARIANT, and the binaries of a value are no variant",
                hint="make values by lakebed.variant.encode or lakebed.variant.parse_json",
                context={"column": column, "table": "VARIANT"},
            )


def is_shredded(kind: pa.DataType) -> bool:
    """Whether a type of a file's column is the group of a variant of which parts are columns of their own."""
    names = {part.name for part in kind} if isinstance(kind, pa.StructType) else set[str]()
    return {"metadata", "typed_value"} <= names <= {"metadata", "value", "typed_value"}


def unshredded_type(kind: pa.DataType) -> pa.DataType:
    """The type of a file's column without shredded parts."""
    return VARIANT if is_shredded(kind) else kind


def unknown_descriptor(descriptor: str, column: str) -> SchemaConflict:
    """The error for a descriptor that is none of Hudi's."""
    return SchemaConflict(
        f"column {column} has the metadata hudi_type {descriptor!r}, which is no type of Hudi",
        hint=_HINT,
        context={"column": column, "type": descriptor},
    )


def refuse_inside(kind: pa.DataType, field: pa.Field, column: str) -> None:
    """Raise `SchemaConflict` for a vector, a blob or a variant inside a struct, an array or a map, where Hudi has none.
    `kind` is the stored type of the field."""
    name = vector_name(kind) if is_vector(kind) else descriptor_of(field)
    if name:
        raise SchemaConflict(
            f"{column} is a {name} inside another type, and Hudi has it only as a column of its own",
            hint="make it a column at the top, or give it without the metadata hudi_type",
            context={"column": column, "type": str(field.type)},
        )


def logical_fields(schema: pa.Schema) -> dict[str, pa.Field]:
    """The fields of a schema that name a logical type, by their names."""
    return {field.name: field for field in schema if HUDI_TYPE in (field.metadata or {})}


def labelled(batch: pa.RecordBatch, fields: Mapping[str, pa.Field]) -> pa.RecordBatch:
    """The rows whose columns have the metadata of these fields."""
    if not fields:
        return batch
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema([fields.get(f.name, f) for f in batch.schema]))


def vector_columns(schema: pa.Schema) -> dict[str, str]:
    """The entry of a base file's footer that names its vectors; empty for a schema without vectors.

    >>> vector_columns(pa.schema([("id", pa.string()), ("emb", vector(4, "double"))]))
    {'hoodie.vector.columns': 'emb:VECTOR(4, DOUBLE)'}
    """
    names = [f"{field.name}:{vector_name(field.type)}" for field in schema if is_vector(field.type)]
    return {VECTOR_COLUMNS_KEY: ",".join(names)} if names else {}


def vector_avro(kind: pa.DataType) -> dict[str, Any]:
    """The Avro type of a vector, as Hudi writes it."""
    element = _NAMES[kind.value_type]
    return {
        "type": "fixed",
        "name": f"vector_{element.lower()}_{kind.list_size}",
        "namespace": "",
        "size": vector_size(kind),
        "logicalType": "vector",
        "dimension": kind.list_size,
        "elementType": element,
        "storageBacking": "FIXED_BYTES",
    }


def vector_of_avro(avro: Mapping[str, Any]) -> pa.DataType:
    """The Arrow type of an Avro vector. Raises `ValueError` if its size contradicts its dimension."""
    kind = vector(avro["dimension"], str(avro.get("elementType", "FLOAT")).lower())  # pyright: ignore[reportArgumentType]
    if avro["size"] != vector_size(kind):
        raise ValueError(f"a vector of {avro['dimension']} elements in {avro['size']} bytes")
    return kind


def file_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a file stores a column of this type: values of a fixed length for a vector."""
    return pa.binary(vector_size(kind)) if is_vector(kind) else kind


def file_values(column: Any) -> Any:
    """A column in the type of files: the bytes of its vectors, which are not copied; other columns unchanged."""
    if not is_vector(column.type):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([file_values(chunk) for chunk in column.chunks], file_type(column.type))
    kind, elements, data = file_type(column.type), column.values, column.values.buffers()[1]
    if data is None:
        return pa.nulls(len(column), kind)
    start = elements.offset * _width(column.type.value_type)
    data = data.slice(start) if start else data
    return pa.Array.from_buffers(kind, len(column), [column.buffers()[0], data], offset=column.offset)


def vectors_of_bytes(values: Any, kind: pa.DataType) -> Any:
    """The vectors whose bytes a file holds. Raises `CorruptFile` for a value of another length."""
    values = fixed_length(values, vector_size(kind))
    element, count = kind.value_type, values.offset + len(values)
    data = values.buffers()[1]
    if data is None:
        return pa.nulls(len(values), kind)
    elements = pa.Array.from_buffers(element, count * kind.list_size, [None, data])
    validity = values.buffers()[0]
    return pa.Array.from_buffers(kind, len(values), [validity], offset=values.offset, children=[elements])


def fixed_length(values: Any, size: int) -> Any:
    """Bytes as values of a fixed length. Raises `CorruptFile` for a value of another length."""
    kind = pa.binary(size)
    if values.type.equals(kind):
        return values
    other = _of_other_length(values, size)
    if other is not None:
        raise CorruptFile(
            f"a value of {other} bytes is stored in a column whose values have {size}",
            hint="Restore the file, or roll back the commit that wrote it.",
            context={"expected": size, "got": other},
        )
    if pt.is_fixed_size_binary(values.type):
        return values.cast(pa.binary()).cast(kind)
    if not values.null_count:
        return values.cast(pa.binary()).cast(kind)
    filled = pc.fill_null(values.cast(pa.binary()), bytes(size)).cast(kind)
    return pc.if_else(values.is_valid(), filled, pa.scalar(None, kind))


def _of_other_length(values: Any, size: int) -> int | None:
    """The length of the first value that has not `size` bytes; None if all have."""
    lengths = pc.binary_length(values.cast(pa.binary()) if pt.is_fixed_size_binary(values.type) else values)
    others = lengths.filter(pc.fill_null(pc.not_equal(lengths, size), False))
    return others[0].as_py() if len(others) else None


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of a type are bytes, in any of their layouts."""
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind)


def takes_vectors(incoming: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a vector column of type `kind` takes values of type `incoming`: lists of numbers (of whole numbers for
    INT8) whose length may fit, and bytes."""
    if pt.is_fixed_size_binary(incoming):
        return incoming.byte_width == vector_size(kind)
    if is_bytes(incoming) or pt.is_null(incoming):
        return True
    if pt.is_fixed_size_list(incoming) and incoming.list_size != kind.list_size:
        return False
    if not is_list(incoming):
        return False
    element = incoming.value_type
    if pt.is_null(element) or pt.is_integer(element):
        return True
    return not pt.is_integer(kind.value_type) and (pt.is_floating(element) or pt.is_decimal(element))


def vectors_of_rows(values: Any, kind: pa.DataType, column: str) -> Any:
    """Incoming values as vectors of a column. Raises `InvalidRecord`, which names the column, the expected and the
    given length, for a value of another length, and for elements that are null, NaN, infinite or beyond the element
    type."""
    if is_bytes(values.type):
        check_lengths(values, vector_size(kind), column, f"{vector_name(kind)} of {vector_size(kind)} bytes")
        vectors = vectors_of_bytes(values, kind)
    elif values.type.equals(kind):
        vectors = values
        _check_elements(_flat(vectors), column, kind)
    else:
        vectors = _of_lists(values, kind, column)
    _check_finite(vectors, column)
    return vectors


def check_lengths(values: Any, size: int, column: str, label: str) -> None:
    """Raise `InvalidRecord` for a value that has not `size` bytes; `label` is the type of the column."""
    other = _of_other_length(values, size)
    if other is not None:
        raise _refused(column, label, f"expected {size} bytes, got {other}")


def _of_lists(values: Any, kind: pa.DataType, column: str) -> pa.Array:
    dimension, name = kind.list_size, vector_name(kind)
    lengths = pc.list_value_length(values)
    others = lengths.filter(pc.fill_null(pc.not_equal(lengths, dimension), False))
    if len(others):
        raise _refused(column, name, f"expected {dimension} elements, got {others[0].as_py()}")
    flat = _flat(values)
    _check_elements(flat, column, kind)
    try:
        elements = flat.cast(kind.value_type, safe=pt.is_integer(kind.value_type) or not pt.is_floating(flat.type))
    except pa.ArrowInvalid as error:
        raise _refused(column, name, str(error)) from error
    if not values.null_count:
        return pa.FixedSizeListArray.from_arrays(elements, type=kind)
    valid = np.asarray(values.is_valid())
    filled = np.zeros((len(values), dimension), kind.value_type.to_pandas_dtype())
    filled[valid] = _numbers(elements).reshape(-1, dimension)
    flat = pa.array(filled.reshape(-1), kind.value_type)
    return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=pa.array(~valid))


def _flat(values: Any) -> pa.Array:
    """The elements of all lists, without those under a null list."""
    return (values.drop_null() if values.null_count else values).flatten()


def _numbers(elements: Any) -> npt.NDArray[Any]:
    kind, end = elements.type, elements.offset + len(elements)
    data = elements.buffers()[1]
    return np.frombuffer(b"" if data is None else data, kind.to_pandas_dtype(), count=end)[elements.offset :]


def _check_elements(elements: Any, column: str, kind: pa.DataType) -> None:
    if elements.null_count:
        raise _refused(column, vector_name(kind), "an element is null")


def _check_finite(vectors: Any, column: str) -> None:
    kind = vectors.type
    if not pt.is_floating(kind.value_type):
        return
    numbers = _numbers(_flat(vectors))
    with np.errstate(invalid="ignore", over="ignore"):
        # NaN and infinity make the sum of their block NaN or infinite, and so may large numbers
        is_doubtful = not np.isfinite(np.add.reduce(numbers, dtype=np.float64))
    if is_doubtful and not np.isfinite(numbers).all():
        value = numbers[~np.isfinite(numbers)][0]
        raise _refused(column, vector_name(kind), f"an element is {value}, and all have to be finite")


def _refused(column: str, label: str, why: str) -> InvalidRecord:
    return InvalidRecord(
        f"column {column} is {label}: {why}",
        hint="correct the value, or give null",
        context={"column": column, "table": label},
    )


def vector_matrix(vectors: Any) -> npt.NDArray[Any]:
    """The elements of vectors without nulls as a matrix with one row for each; nothing is copied."""
    return _numbers(vectors.flatten()).reshape(-1, vectors.type.list_size)
