from __future__ import annotations

import datetime
import io
import uuid
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.model import META_COLUMNS
from lakebed.schema.arrow import (
    has_untyped,
    list_of,
    map_of,
    normal_type,
    normalise,
    normalise_batch,
    refuse_untyped,
    with_meta,
    without_meta,
)

STORED = [
    (pa.int8(), pa.int32()),
    (pa.int16(), pa.int32()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.int64(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary(16), pa.binary()),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.run_end_encoded(pa.int32(), pa.int8()), pa.int32()),
    (pa.date64(), pa.date32()),
    (pa.timestamp("ns"), pa.timestamp("us")),
    (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("us", "UTC")),
    (pa.timestamp("ms", "+02:00"), pa.timestamp("ms", "UTC")),
    (pa.time64("ns"), pa.time64("us")),
    (pa.decimal256(38, 4), pa.decimal128(38, 4)),
    (pa.uuid(), pa.binary()),
    (pa.large_list(pa.int8()), list_of(pa.int32())),
    (pa.list_(pa.float16(), 3), list_of(pa.float32())),
    (pa.list_view(pa.field("x", pa.int32(), False)), list_of(pa.int32(), nullable=False)),
    (pa.map_(pa.large_string(), pa.date64()), map_of(pa.date32())),
    (
        pa.struct([pa.field("a", pa.int8(), False), ("b", pa.list_(pa.large_string()))]),
        pa.struct([pa.field("a", pa.int32(), False), ("b", list_of(pa.string()))]),
    ),
]


@pytest.mark.parametrize(("given", "stored"), STORED, ids=str)
def test_every_arrow_type_has_one_stored_type(given: pa.DataType, stored: pa.DataType):
    schema = normalise(pa.schema([pa.field("c", given, False, {"PARQUET:field_id": "7"})]))
    assert schema.equals(pa.schema([pa.field("c", stored, False)]), check_metadata=True)
    assert normalise(schema).equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.duration("us"), "c"),
        (pa.month_day_nano_interval(), "c"),
        (pa.dense_union([pa.field("a", pa.int32())]), "c"),
        (pa.uint64(), "c"),
        (pa.decimal256(39, 2), "c"),
        (pa.decimal128(5, -2), "c"),
        (pa.struct([]), "c"),
        (pa.map_(pa.int32(), pa.string()), "c"),
        (pa.map_(pa.string(), pa.duration("s")), "c.value"),
    ],
    ids=str,
)
def test_types_that_cannot_be_stored_are_refused_by_name(kind: pa.DataType, column: str):
    with pytest.raises(SchemaConflict, match=f"column {column} ") as error:
        normalise(pa.schema([("ok", pa.int32()), ("c", kind)]))
    assert error.value.hint


def test_columns_of_nothing_but_null_are_kept_and_refused_where_a_table_is_made():
    for kind in (pa.null(), pa.list_(pa.struct([("x", pa.null())]))):
        schema = normalise(pa.schema([("ok", pa.int32()), ("c", kind)]))
        assert has_untyped(schema.field("c").type)
        with pytest.raises(SchemaConflict, match="column c "):
            refuse_untyped(schema)
        with pytest.raises(SchemaConflict, match=r"column c has .* does not know it \(likewise d, e\)"):
            refuse_untyped(pa.schema([*schema, ("d", kind), ("e", pa.null())]))


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("a", pa.int32()), ("a", pa.int32())]),
        pa.schema([("a", pa.int32()), ("A", pa.int32())]),
        pa.schema([("s", pa.struct([("é", pa.int32()), ("É", pa.int32())]))]),
        pa.schema([("", pa.int32())]),
    ],
)
def test_names_that_differ_in_case_only_are_refused(schema: pa.Schema):
    with pytest.raises(SchemaConflict, match="name"):
        normalise(schema)


def test_meta_columns_stand_first():
    data = pa.schema([("id", pa.string()), (META_COLUMNS[2], pa.string()), pa.field("n", pa.int32(), False)])
    full = with_meta(data)
    assert full.names == [*META_COLUMNS, "id", "n"]
    assert without_meta(full).equals(pa.schema([("id", pa.string()), pa.field("n", pa.int32(), False)]))


def test_batches_are_brought_to_stored_types():
    batch = pa.record_batch(
        {
            "n": pa.array([1, None], pa.int8()),
            "at": pa.array([1_700_000_000_123_456_789, -1], pa.timestamp("ns", "Asia/Tokyo")),
            "word": pa.array(["a", "b"]).dictionary_encode(),
            "id": pa.array([uuid.UUID(int=1).bytes] * 2, pa.binary(16)),
            "deep": pa.array([[{"x": 1}], None], pa.large_list(pa.struct([("x", pa.int16())]))),
            "day": pa.array([datetime.date(2024, 2, 3)] * 2, pa.date64()),
        }
    )
    stored = normalise_batch(batch, normalise(batch.schema))
    assert stored.schema.equals(normalise(batch.schema))
    assert stored.column("at").cast(pa.int64()).to_pylist() == [1_700_000_000_123_456, 0]
    assert stored.drop_columns(["at"]).to_pylist() == [
        {"n": 1, "word": "a", "id": uuid.UUID(int=1).bytes, "deep": [{"x": 1}], "day": datetime.date(2024, 2, 3)},
        {"n": None, "word": "b", "id": uuid.UUID(int=1).bytes, "deep": None, "day": datetime.date(2024, 2, 3)},
    ]


def test_a_value_that_does_not_fit_is_an_invalid_record():
    batch = pa.record_batch({"at": pa.array([2**62], pa.timestamp("s"))})
    with pytest.raises(InvalidRecord, match="column at"):
        normalise_batch(batch, normalise(batch.schema))


def test_a_null_where_none_may_be_is_an_invalid_record():
    schema = pa.schema([pa.field("id", pa.string(), False)])
    with pytest.raises(InvalidRecord, match=r"column id .* 1 null"):
        normalise_batch(pa.record_batch({"id": pa.array(["a", None])}), schema)


@pytest.mark.parametrize(("deepest", "kind"), [(89, "struct"), (44, "list"), (44, "map")])
def test_types_nest_as_deep_as_readers_of_parquet_files_go(deepest: int, kind: str) -> None:
    wrap: dict[str, Callable[[pa.DataType], pa.DataType]] = {
        "struct": lambda inner: pa.struct([("f", inner)]),
        "list": pa.list_,
        "map": lambda inner: pa.map_(pa.string(), inner),
    }
    nested = pa.int64()
    for _ in range(deepest):
        nested = wrap[kind](nested)
    schema = pa.schema([("n", nested)])
    file = io.BytesIO()
    pq.write_table(normalise(schema).empty_table(), file)
    assert pq.read_table(file).schema.equals(schema)
    with pytest.raises(SchemaConflict, match=r"column 'n' nests 9[12] levels deep"):
        normalise(pa.schema([("n", wrap[kind](nested))]))


class _RaysTensors(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.large_list(pa.float32()), "ray.data.arrow_tensor_v2")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    def __hash__(self) -> int:
        return hash(self.extension_name)


def test_matrices_of_ray_are_lists():
    assert normal_type(_RaysTensors(), "e") == pa.list_(pa.field("element", pa.float32()))
