"""What a write takes: every kind of data, columns of nothing but null, names in another case, Arrow's many layouts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict
from lakebed.schema.layouts import plain_table
from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.int64())])
ROWS = [{"id": 1, "name": "a", "at": 1}, {"id": 2, "name": None, "at": 1}]
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)
_numbers = count()


def fresh() -> str:
    return f"memory://what-is-data/{next(_numbers)}"


def new(schema: pa.Schema = SCHEMA, **more: Any) -> Table:
    more = {"ordering": "at" if "at" in schema.names else None} | more
    return lakebed.create(fresh(), schema, key="id", index="bucket", buckets=1, **more)


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        tuple(ROWS),
        {"id": [1, 2], "name": ["a", None], "at": [1, 1]},
        {"id": np.array([1, 2]), "name": pa.array(["a", None]), "at": np.array([1, 1])},
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        TABLE.to_pandas(),
        pl.DataFrame(TABLE),
        pl.DataFrame(TABLE).lazy(),
        ds.dataset(TABLE),
        ds.dataset(TABLE).scanner(),
        duckdb.from_arrow(TABLE),
    ],
    ids=lambda data: f"{type(data).__module__}.{type(data).__name__}",
)
def test_every_kind_of_data_is_taken(data: Any) -> None:
    table = new()
    assert table.upsert(data).inserted == 2
    assert rows_of(table) == ROWS


def test_a_table_is_data_too_and_made_from_such() -> None:
    first = lakebed.create(fresh(), ROWS, key="id", ordering="at", index="bucket", buckets=1)
    assert first.schema == SCHEMA
    first.upsert(ROWS)
    copy = new()
    copy.upsert(first)
    assert rows_of(copy) == ROWS


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (7, "cannot take rows from builtins.int"),
        ([1, 2], "row 0 of the list is of type int, not a dict"),
        ([], "an empty list has no columns"),
        ({"id": [1], "name": ["a", "b"], "at": [1]}, "this dict is no table"),
    ],
)
def test_data_of_unknown_kinds_is_refused_with_a_hint(data: Any, said: str) -> None:
    table = new()
    with pytest.raises(InvalidOption, match=said) as refused:
        table.upsert(data)
    assert refused.value.hint
    assert table.count() == 0


def test_a_column_of_nothing_but_null_takes_the_tables_type() -> None:
    table = new()
    table.upsert(TABLE)
    table.upsert(pa.table({"id": [1], "name": pa.nulls(1), "at": [2]}))
    table.upsert(pl.DataFrame({"id": [3], "name": [None], "at": [2]}))
    assert [row["name"] for row in rows_of(table)] == [None, None, None]
    assert table.schema == SCHEMA


def test_nulls_inside_structs_lists_and_maps_take_the_tables_type() -> None:
    inside = pa.struct([("x", pa.int32()), ("y", pa.string())])
    schema = pa.schema(
        [("id", pa.int64()), ("s", inside), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64()))]
    )
    table = new(schema)
    untyped = pa.table(
        {
            "id": [1],
            "s": pa.array([{"x": None, "y": "t"}], pa.struct([("x", pa.null()), ("y", pa.string())])),
            "l": pa.array([[None]], pa.list_(pa.null())),
            "m": pa.array([[("k", None)]], pa.map_(pa.string(), pa.null())),
        }
    )
    table.upsert(untyped)
    assert rows_of(table) == [{"id": 1, "s": {"x": None, "y": "t"}, "l": [None], "m": [("k", None)]}]
    assert [f.type for f in table.schema][1] == inside


@pytest.mark.parametrize("kind", [pa.null(), pa.list_(pa.null())], ids=str)
def test_an_untyped_column_that_the_table_does_not_know_is_refused(kind: pa.DataType) -> None:
    table = new()
    with pytest.raises(SchemaConflict, match=r"column extra has type .*null") as refused:
        table.upsert(TABLE.append_column("extra", pa.array([None, None], kind)))
    assert refused.value.context["column"] == "extra"
    assert table.count() == 0
    with pytest.raises(SchemaConflict, match="column extra"):
        lakebed.create(fresh(), pa.schema([*SCHEMA, ("extra", kind)]), key="id")


def test_a_key_of_nothing_but_null_is_a_null_key() -> None:
    table = new()
    with pytest.raises(InvalidRecord, match="null"):
        table.upsert(pa.table({"id": pa.nulls(1), "name": ["a"], "at": [1]}))
    assert table.count() == 0


def test_names_match_in_another_case() -> None:
    table = new(partition_by="name")
    table.upsert(TABLE.slice(0, 1).rename_columns(["ID", "Name", "AT"]))
    assert rows_of(table) == ROWS[:1]
    assert table.schema.names == SCHEMA.names
    assert table.delete(pa.table({"ID": [1], "NAME": ["a"]})).deleted == 1


def test_names_that_two_columns_could_have_are_refused() -> None:
    twice = TABLE.append_column("ID", pa.array([5, 6]))
    with pytest.raises(SchemaConflict, match="the names id and ID"):
        new().upsert(twice)


VIEW = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(["a"], pa.string_view()))


@pytest.mark.parametrize(
    "name",
    [
        VIEW,
        pl.Series(["a", None], dtype=pl.Categorical).to_arrow(),
        pl.Series(["a", None], dtype=pl.Enum(["a"])).to_arrow(),
        pa.RunEndEncodedArray.from_arrays([1, 2], ["a", None]),
        pa.array(["a", None], pa.string_view()),
        pa.array(["a", None], pa.large_string()),
    ],
    ids=lambda array: str(array.type)[:40],
)
def test_texts_come_in_every_layout(name: pa.Array) -> None:
    table = new()
    table.upsert(pa.table({"id": [1, 2], "name": name, "at": [1, 1]}))
    assert rows_of(table) == ROWS


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["a"], None], pa.list_view(pa.string_view())),
        pa.array([["a"], None], pa.large_list_view(pa.string())),
        pl.Series([["a"], None], dtype=pl.List(pl.Categorical)).to_arrow(),
        pa.ListArray.from_arrays([0, None, 1], pa.array(["a"], pa.string_view()).dictionary_encode()),
        pa.array([["a"], None], pa.list_(pa.string_view(), 1)),
    ],
    ids=lambda array: str(array.type)[:40],
)
def test_lists_come_in_every_layout(column: pa.Array) -> None:
    table = new(pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))
    table.upsert(pa.table({"id": [1, 2], "tags": column}))
    assert rows_of(table) == [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": None}]


def test_nanoseconds_of_a_time_are_cut_off() -> None:
    table = new(pa.schema([("id", pa.int64()), ("t", pa.time64("us")), ("l", pa.list_(pa.time64("us")))]))
    times = pa.array([[2999]], pa.list_(pa.time64("ns")))
    fine = pa.table({"id": [1], "t": pa.array([1999], pa.time64("ns")), "l": times})
    table.upsert(fine)
    assert rows_of(table) == [{"id": 1, "t": time(0, 0, 0, 1), "l": [time(0, 0, 0, 2)]}]


def test_a_null_struct_may_have_fields_that_are_not_null() -> None:
    kind = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    table = new(pa.schema([("id", pa.int64()), ("s", kind)]))
    table.upsert(pa.table({"id": [1, 2], "s": pa.array([None, {"x": 5}], kind)}))
    assert rows_of(table) == [{"id": 1, "s": None}, {"id": 2, "s": {"x": 5}}]


def test_fields_of_a_null_struct_may_be_null_where_they_must_not_be() -> None:
    inner = pa.struct([pa.field("y", pa.string(), nullable=False), pa.field("d", pa.date32(), nullable=False)])
    kind = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("in", inner, nullable=False)])
    hidden, texts, days = pa.array([False, True]), pa.array(["a", None]), pa.array([3, None], pa.date32())
    inside = pa.StructArray.from_arrays([texts, days], fields=list(inner), mask=hidden)
    fields = [pa.array([5, None]), inside]
    structs = pa.StructArray.from_arrays(fields, fields=list(kind), mask=hidden)
    lists = pa.ListArray.from_arrays([0, 2, 2], structs, type=pa.list_(pa.field("element", kind)))
    maps = pa.MapArray.from_arrays([0, 0, 2], ["k", "l"], structs)
    columns = {"id": pa.array([1, 2]), "s": structs, "l": lists, "m": maps}
    table = new(pa.schema([(name, column.type) for name, column in columns.items()]))
    table.upsert(pa.table(columns))
    value = {"x": 5, "in": {"y": "a", "d": date(1970, 1, 4)}}
    assert rows_of(table) == [
        {"id": 1, "s": value, "l": [value, None], "m": []},
        {"id": 2, "s": None, "l": [], "m": [("k", value), ("l", None)]},
    ]
    bad = pa.StructArray.from_arrays(fields, fields=list(kind))
    with pytest.raises(InvalidRecord):
        table.upsert(pa.table(columns | {"s": bad}))


def test_plain_layouts_keep_slices_and_chunks() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 5], ["a", None]).slice(1, 3)
    maps = pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string_view()))
    chunks = pa.chunked_array([maps.slice(0, 1), maps.slice(1)])
    plain = plain_table(pa.table({"runs": runs, "maps": chunks}))
    plain.validate(full=True)
    assert plain.to_pylist() == [
        {"runs": "a", "maps": [("k", "v")]},
        {"runs": None, "maps": None},
        {"runs": None, "maps": []},
    ]
    assert plain.schema.types == [pa.string(), pa.map_(pa.string(), pa.string())]


NOON = datetime(2026, 11, 24, 12)
NUMBERS = {"i": pa.int32(), "x": pa.float32(), "d": pa.decimal128(6, 2), "l": pa.list_(pa.int16())}
SORTS = NUMBERS | {"at": pa.timestamp("ms", "UTC"), "day": pa.date32(), "m": pa.map_(pa.string(), pa.int32())}


def test_values_of_python_get_the_width_that_the_table_has() -> None:
    table = new(pa.schema([("id", pa.int64()), *SORTS.items()]))
    row = {"i": 1, "x": 2, "d": 3, "l": [4], "at": NOON.replace(tzinfo=UTC), "day": NOON.date(), "m": [("k", 5)]}
    table.upsert([{"id": 1, **row}])
    table.upsert({"ID": [2], **{name.upper(): [value] for name, value in row.items()}})
    assert rows_of(table) == [{"id": 1, **row}, {"id": 2, **row}]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("i", 2.5, SchemaConflict),
        ("i", Decimal("2.5"), SchemaConflict),
        ("i", 1 << 40, SchemaConflict),
        ("l", [2.5], SchemaConflict),
        ("m", [("k", 2.5)], InvalidOption),
        ("day", NOON, SchemaConflict),
        ("day", 5, SchemaConflict),
        ("at", NOON, SchemaConflict),
        ("at", 5, SchemaConflict),
        ("at", (NOON + timedelta(microseconds=1)).replace(tzinfo=UTC), InvalidRecord),
    ],
    ids=str,
)
def test_values_of_python_are_never_cut_to_the_tables_type(name: str, value: Any, error: type[Exception]) -> None:
    table = new(pa.schema([("id", pa.int64()), (name, SORTS[name])]))
    with pytest.raises(error):
        table.upsert([{"id": 1, name: value}])
    assert table.count() == 0


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.string(), "a"), (pa.string(), None), (pa.int32(), 1), (pa.int32(), None)], ids=str
)
def test_dicts_are_maps_whose_values_may_have_the_type_of_the_keys(kind: pa.DataType, value: Any) -> None:
    inside = pa.map_(pa.string(), kind)
    table = new(pa.schema([("id", pa.int64()), ("m", inside), ("s", pa.struct([("l", pa.list_(inside))]))]))
    inner = value or ("b" if kind == pa.string() else 2)
    table.upsert([{"id": 1, "m": {"k": value}, "s": {"l": [{"k": inner}]}}])
    assert rows_of(table) == [{"id": 1, "m": [("k", value)], "s": {"l": [[("k", inner)]]}}]


STREAMS: dict[str, Callable[[pa.Table], Any]] = {
    "reader": lambda rows: rows.to_reader(),
    "reader of batches": lambda rows: pa.RecordBatchReader.from_batches(rows.schema, iter(rows.to_batches())),
    "scanner of a reader": lambda rows: ds.Scanner.from_batches(rows.to_reader()),
    "duckdb": lambda rows: duckdb.from_arrow(rows).to_arrow_reader(),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_a_stream_that_a_table_was_created_for_has_its_rows_still(stream: Callable[[pa.Table], Any], verb: str) -> None:
    rows = pa.table({"id": [1, 2, 3], "v": [4, 5, 6]})
    data = stream(rows)
    table = lakebed.create(fresh(), data, key="id")
    assert getattr(table, verb)(data).inserted == 3
    assert rows_of(table) == rows.to_pylist()
    for again in ("upsert", "delete", "insert_overwrite"):
        with pytest.raises(InvalidOption, match=r"are gone|already scanned"):
            getattr(table, again)(data)
    with pytest.raises(InvalidOption, match=r"are gone|already scanned"):
        table.explain(upsert=data)
    assert rows_of(table) == rows.to_pylist()


def test_a_stream_of_a_hudi_job_makes_a_table_with_its_rows_and_is_refused_the_second_time() -> None:
    rows = pa.table({"id": [1, 2, 3], "v": [4, 5, 6]})
    options = {"hoodie.table.name": "s", "hoodie.datasource.write.recordkey.field": "id"}
    uri, data = fresh(), rows.to_reader()
    result = lakebed.write(data, uri, options)
    assert result is not None
    assert result.inserted == 3
    with pytest.raises(InvalidOption, match="are gone"):
        lakebed.write(data, uri, options, mode="overwrite")
    assert rows_of(lakebed.open(uri)) == rows.to_pylist()


def test_streams_without_rows_write_nothing() -> None:
    rows = pa.table({"id": pa.array([], pa.int64())})
    table = lakebed.create(fresh(), rows, key="id")
    assert table.upsert(rows.to_reader()).rows == 0
    assert table.upsert(pa.RecordBatchReader.from_batches(rows.schema, iter([]))).rows == 0


class StreamOfOthers:
    """A class that nothing is known of, with one stream, or a new one for each reader."""

    def __init__(self, *, once: bool) -> None:
        self._reader = TABLE.to_reader() if once else None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        rows = self._reader or TABLE
        return rows.__arrow_c_stream__(requested_schema)


def test_a_stream_of_an_unknown_class_gives_its_rows_to_the_write_after_create() -> None:
    for index in ("auto", "bucket"):
        stream = StreamOfOthers(once=True)
        more: dict[str, Any] = {"buckets": 1} if index == "bucket" else {}
        table = lakebed.create(fresh(), stream, key="id", index=index, **more)
        assert table.upsert(stream, retries=1).inserted == 2
        for verb in (table.upsert, table.insert, table.bulk_insert, table.delete):
            with pytest.raises(InvalidOption, match="an earlier call has read them"):
                verb(stream)
        assert rows_of(table) == ROWS
    assert rows_of(lakebed.load(fresh(), StreamOfOthers(once=True), key="id")) == ROWS


def test_a_stream_that_is_made_again_for_each_reader_is_taken_again() -> None:
    rows = StreamOfOthers(once=False)
    table = lakebed.create(fresh(), rows, key="id", index="bucket", buckets=1)
    assert table.upsert(rows).inserted == 2
    assert table.upsert(rows).updated == 2
    assert table.delete(rows).deleted == 2


NANOS = pa.array([None, 1_234_567_890_123_456_000, 1_234_567_890_123_456_789, -1], pa.timestamp("ns"))


def fine_times(form: str) -> Any:
    table = pa.table({"id": [1, 2, 3, 4], "t": NANOS})
    if form == "pandas":
        return table.to_pandas()
    return table if form == "table" else table.to_reader(1)


@pytest.mark.parametrize("form", ["table", "pandas", "reader", "spooled"])
def test_nanoseconds_that_are_cut_are_a_warning(
    form: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "spooled":
        monkeypatch.setattr("lakebed.inputs.base.TABLE_BYTES", 0)
    target = lakebed.create(fresh(), pa.schema([("id", pa.int64()), ("t", pa.timestamp("us"))]), key="id")
    target.upsert(fine_times(form))
    (warning,) = caplog.messages
    assert "column t of table" in warning
    assert "2009-02-13 23:31:30.123456789" in warning
    micros = target.to_arrow().sort_by("id")["t"].cast(pa.int64()).to_pylist()
    assert micros == [None, 1_234_567_890_123_456, 1_234_567_890_123_456, -1]


def test_times_of_whole_microseconds_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    lakebed.load(fresh(), pa.table({"id": [1, 2], "t": NANOS.slice(0, 2)}), key="id")
    lakebed.load(fresh(), pa.table({"id": [1], "t": pa.array([1], pa.timestamp("us"))}), key="id")
    assert caplog.messages == []
    lakebed.load(fresh(), pa.table({"id": [1, 2, 3, 4], "t": NANOS}), key="id")
    assert len(caplog.messages) == 1
