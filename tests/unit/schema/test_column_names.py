"""Names that are nearly the same: typos of the data's columns, the nearest name in hints, names in another case."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, LakebedError, SchemaConflict
from lakebed.schema.column_names import SimilarColumn, similar_columns
from lakebed.table import Table
from support.write_tables import SCHEMA, content, refused, rows

Make = Callable[..., Table]
FIRST = rows((1, "c", "a", 10), (2, "d", "b", 10))
EVERY_KIND = pytest.mark.parametrize("kind", ["cow", "mor"])


@pytest.mark.parametrize(
    ("name", "existing", "similar"),
    [
        ("ctiy", "city", True),
        ("fares", "fare", True),
        ("fae", "fare", True),
        ("fre", "far", False),
        ("fxe", "fare", False),
        ("amoutns", "amount", False),
        ("Fare_Amonut", "fare_amount", True),
        ("total_pasenger", "total_passengers", True),
        ("total_paseger", "total_passengers", False),
        ("address2", "address1", False),
        ("lon", "lat", False),
    ],
)
def test_a_name_with_few_wrong_letters_is_similar(name: str, existing: str, similar: bool) -> None:
    expected = [SimilarColumn(name, existing, True)] if similar else []
    assert similar_columns([existing, "qqqqqq"], [name]) == expected
    assert similar_columns([existing], [existing, name]) == [SimilarColumn(name, existing, False)] * similar


@pytest.mark.parametrize(("more", "seen"), [(19, True), (20, False)])
def test_data_of_another_kind_is_not_compared_name_by_name(more: int, seen: bool) -> None:
    names = ["ctiy", *(f"{n}{'x' * n}" for n in range(more))]
    assert (similar_columns(["city"], names) != []) == seen


@EVERY_KIND
def test_a_typo_in_partial_rows_is_refused_with_the_nearest_name(make: Make, uri: str, kind: str) -> None:
    table = make(type=kind, schema=SCHEMA.append(pa.field("fare", pa.float64())))
    table.upsert(FIRST.append_column("fare", pa.array([1.0, 2.0])))
    typo = [{"id": 1, "city": "c", "ts": 20, "fares": 5.0}]
    with refused(uri, SchemaConflict, "'fares'", "Rename it to 'fare'", "lakebed.write.evolution"):
        table.upsert(typo, partial=True)
    done = table.upsert(typo, partial=True, options={"lakebed.write.evolution": "add"})
    assert done.schema_changes == ("column fares is new (DOUBLE)",)
    assert table.get([1], columns=["fare", "fares"]).to_pylist() == [{"fare": 1.0, "fares": 5.0}]


def test_a_new_column_that_is_nearly_one_of_the_table_is_a_warning(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    table = make()
    with caplog.at_level(logging.WARNING, "lakebed"):
        more = FIRST.append_column("number", pa.array([1, 2]))
        table.upsert(more)
        assert caplog.messages == []
        typo = more.append_column("citi", pa.array(["x", "y"]))
        table.upsert(typo)
        (warning,) = caplog.messages
        assert "new column 'citi', and table 't' has 'city'" in warning
        table.upsert(typo)
    assert caplog.messages == [warning]


def test_errors_of_missing_and_unknown_columns_name_the_nearest_one(make: Make, uri: str) -> None:
    table = make()
    table.upsert(FIRST)
    renamed = FIRST.rename_columns(["id", "city", "vv", "ts"])
    with refused(uri, SchemaConflict, "lacks the table's column v"):
        table.upsert(renamed)
    table = lakebed.create(f"{uri}-2", SCHEMA.append(pa.field("amount", pa.int64())), key="id")
    typo = FIRST.append_column("amuont", pa.array([1, 2]))
    for options in ({}, {"lakebed.write.evolution": "strict"}):
        with refused(table.uri, SchemaConflict, "Did you mean amount by amuont? Rename it."):
            table.upsert(typo, options=options)


def test_names_of_key_partition_ordering_and_hash_fields_match_in_any_case(uri: str) -> None:
    data = pa.table({"ID": [1], "City": ["c"], "TS": [1]})
    table = lakebed.create(
        uri, data, key="id", partition_by="CITY", ordering="ts", index="bucket", buckets=2, hash_fields="iD"
    )
    assert table.properties["hoodie.table.recordkey.fields"] == "ID"
    assert table.properties["hoodie.table.partition.fields"] == "City"
    assert table.properties["hoodie.table.ordering.fields"] == "TS"
    table.upsert(data)
    assert table.get([1]).to_pylist() == data.to_pylist()
    named = {"recordkey.field": "id", "partitionpath.field": "city", "precombine.field": "ts"}
    options = {f"hoodie.datasource.write.{key}": value for key, value in named.items()}
    for _ in range(2):
        lakebed.write(data, f"{uri}-job", options | {"hoodie.table.name": "job"})
    assert lakebed.open(f"{uri}-job").scan().to_arrow().to_pylist() == data.to_pylist()


@pytest.mark.parametrize(
    ("call", "error", "hint"),
    [
        (lambda t: lakebed.create(t.uri + "x", SCHEMA, key="idd"), SchemaConflict, "Did you mean 'id'?"),
        (lambda t: lakebed.create(t.uri + "x", SCHEMA, key="qqq"), SchemaConflict, "The schema has id, city, v, ts."),
        (lambda t: lakebed.create(t.uri + "x", SCHEMA, key="id", partition_by="cty"), SchemaConflict, "mean 'city'?"),
        (
            lambda t: lakebed.create(t.uri + "x", SCHEMA, key="id", index="bucket", buckets=2, hash_fields="idd"),
            LakebedError,
            "name key fields only",
        ),
        (lambda t: t.upsert(FIRST.rename_columns(["idd", "city", "v", "ts"])), SchemaConflict, "Did you mean 'idd'?"),
        (lambda t: t.delete_partitions("cc"), InvalidOption, "Did you mean 'c'?"),
        (lambda t: t.scan(where="ctiy = 'c'").count(), InvalidOption, "Did you mean 'city'?"),
        (lambda t: t.scan(columns=["ctiy"]).count(), InvalidOption, "Did you mean 'city'?"),
        (lambda t: t.get([1], columns=["ctiy"]), InvalidOption, "Did you mean 'city'?"),
        (lambda t: t.maintenance.cluster(sort_columns=["ctiy"]), InvalidOption, "Did you mean 'city'?"),
        (lambda t: lakebed.indexes.advise(FIRST, key="idd"), InvalidOption, "Did you mean 'id'?"),
        (lambda t: t.maintenance.rescale(4, partitions="cc"), LakebedError, "'c'"),
    ],
)
def test_a_wrong_name_names_the_nearest(make: Make, call: Any, error: type[LakebedError], hint: str) -> None:
    table = make(index="bucket")
    table.upsert(FIRST)
    with pytest.raises(error) as raised:
        call(table)
    assert hint in raised.value.hint, raised.value
    assert content(table) == [(1, "c", "a", 10), (2, "d", "b", 10)]


def _rides(name: str) -> Table:
    rides = {"id": ["a", "b"], "city": ["rome", "oslo"], "fare": [9.5, 1.0]}
    return lakebed.load(f"memory://column-names/{name}", rides, key="id")


@pytest.mark.parametrize(
    "condition",
    [
        "city = rome",
        "city != rome",
        "city = rome and fare > 1",
        "fare > 1 and city == rome",
        "city in (oslo, rome) or city in (rome)",
        "city like rome",
        "upper(city) = rome",
        "rome = city",
        "city between 'a' and rome",
    ],
)
def test_a_text_without_quotes_is_named_as_one(condition: str) -> None:
    table = _rides(f"unquoted-{abs(hash(condition))}")
    calls: list[Callable[[], Any]] = [
        lambda: table.count(where=condition),
        lambda: table.delete(where=condition),
        lambda: table.update({"fare": "1"}, where=condition),
    ]
    for call in calls:
        with pytest.raises(InvalidOption) as refused:
            call()
        assert refused.value.hint in ("A text is written in quotes: 'rome'.", "A text is written in quotes: 'oslo'.")
    assert table.count() == 2


def test_a_value_without_quotes_is_named_as_a_text() -> None:
    table = _rides("unquoted-value")
    with pytest.raises(InvalidOption, match="A text is written in quotes: 'bern'"):
        table.update({"city": "bern"}, where="id = 'a'")
    with pytest.raises(InvalidOption, match="A text is written in single quotes: 'rome'"):
        lakebed.sql("select * from t where city = rome", {"t": table})
    with pytest.raises(InvalidOption, match="with texts in quotes"):
        table.count(where="city = New York")


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("fair > 1", "Did you mean 'fare'?"),
        ("citi = 'rome'", "Did you mean 'city'?"),
        ("fare = fair", "Did you mean 'fare'? Otherwise a text is written in quotes: 'fair'."),
        ("bern is null", "The columns are _hoodie_commit_time"),
    ],
)
def test_a_name_that_is_nearly_a_columns_name_is_named_as_a_typo(condition: str, hint: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        _rides(f"typo-{abs(hash(condition))}").count(where=condition)
    assert refused.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("name", "near"),
    [("one", "once"), ("retry", "retries"), ("on", None), ("source", None), ("select", None), ("partition", "partial")],
)
def test_only_a_near_argument_is_suggested(name: str, near: str | None) -> None:
    with pytest.raises(TypeError) as refused:
        _rides(f"argument-{name}").upsert({}, **{name: 1})
    assert ("did you mean" in str(refused.value)) == (near is not None)
