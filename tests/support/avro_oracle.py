"""Avro records of one schema to Arrow columns."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, cast

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.avro.types import bounded_schema
from lakebed.schema.avro import avro_to_arrow

_avro: Any = fastavro  # its stubs leave streams and schemas half typed
Int64s = npt.NDArray[np.int64]
_EXACT = Context(prec=60)


def read_records(
    data: bytes | memoryview, starts: Int64s, ends: Int64s, avro_schema: str, columns: Sequence[str]
) -> list[pa.Array]:
    """The columns of the records that lie in `data` between these places, in the types of `avro_to_arrow`.

    Raises `ValueError` where the bytes are no such records.
    """
    schema = avro_to_arrow(avro_schema)
    parsed = bounded_schema(json.dumps(_without_logical_types(json.loads(avro_schema))))
    records: list[Mapping[str, Any]] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        source = io.BytesIO(data[start:end])
        records.append(_avro.schemaless_reader(source, parsed, None))
        if source.tell() != end - start:
            raise ValueError("bytes are left over behind a record")
    return [_column(records, schema.field(name)) for name in columns]


def _column(records: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    convert = _converter(field.type)
    return pa.array([convert(record[field.name]) for record in records], field.type)


def _without_logical_types(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_without_logical_types(part) for part in avro]
    if isinstance(avro, dict):
        parts = cast("dict[str, Any]", avro)
        return {key: _without_logical_types(part) for key, part in parts.items() if key != "logicalType"}
    return avro


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_decimal(kind):
        scale = kind.scale
        return lambda v: None if v is None else _decimal(v, scale)
    if pa.types.is_struct(kind):
        parts = {field.name: _converter(field.type) for field in kind}
        return lambda v: None if v is None else {name: part(v[name]) for name, part in parts.items()}
    if pa.types.is_map(kind):
        item = _converter(kind.item_type)
        return lambda v: None if v is None else [(key, item(x)) for key, x in v.items()]
    if pa.types.is_list(kind):
        item = _converter(kind.value_type)
        return lambda v: None if v is None else [item(x) for x in v]
    return lambda v: v


def _decimal(value: bytes, scale: int) -> Decimal:
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)
