"""How the columns of the data change those of the table: only as its property, or the write's option, says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict
from lakebed.table import Table
from support.write_tables import refused

Make = Callable[..., Table]
OPTION = "lakebed.write.evolution"
ID = pa.field("id", pa.int64(), nullable=False)
SCHEMA = pa.schema([ID, ("n", pa.int32())])
FIRST = pa.Table.from_pylist([{"id": 1, "n": 1}], SCHEMA)
WIDER = pa.Table.from_pylist([{"id": 2, "n": 2**40}], pa.schema([ID, ("n", pa.int64())]))


def new_table(make: Make, evolution: str | None = None) -> Table:
    properties = {OPTION: evolution} if evolution else {}
    table = make(SCHEMA, partition_by=None, ordering=None, properties=properties)
    table.upsert(FIRST)
    return table


def values(table: Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in lakebed.open(table.uri).scan().to_arrow().to_pylist()}


def test_a_wider_type_is_refused_with_the_cast_and_the_option_that_takes_it(make: Make) -> None:
    table = new_table(make)
    with refused(table.uri, SchemaConflict, "column n is INT", "BIGINT", "CAST(n AS INT)", f"{OPTION}=widen"):
        table.upsert(WIDER)
    done = table.upsert(WIDER, options={OPTION: "widen"})
    assert done.schema_changes == ("column n is BIGINT now, it was INT",)
    assert done.schema_changes[0] in str(done).splitlines()
    assert values(table) == {1: 1, 2: 2**40}


def test_a_table_remembers_that_it_may_be_widened(make: Make) -> None:
    table = new_table(make, "widen")
    assert table.explain(upsert=WIDER).schema_changes == ("column n is BIGINT now, it was INT",)
    table.upsert(WIDER)
    assert values(table) == {1: 1, 2: 2**40}
    table.configure({OPTION: "strict"})
    with refused(table.uri, SchemaConflict, "column extra, which the table has not", f"{OPTION}=add"):
        table.upsert(WIDER.append_column("extra", pa.array([1])))


def test_new_columns_come_in_and_are_named(make: Make) -> None:
    table = new_table(make)
    more = pa.table({"id": [2], "n": pa.array([2], pa.int32()), "extra": ["x"]})
    assert "column extra is new (STRING)" in str(table.explain(upsert=more))
    done = table.upsert(more)
    assert done.schema_changes == ("column id may be null now", "column extra is new (STRING)")
    assert done.to_dict()["schema_changes"] == list(done.schema_changes)
    assert table.upsert(more).schema_changes == ()


def test_under_strict_nothing_changes_and_nulls_are_values_that_do_not_fit(make: Make) -> None:
    table = new_table(make, "strict")
    assert table.upsert(pa.table({"id": [2], "n": pa.array([2], pa.int32())})).schema_changes == ()
    assert not table.schema.field("id").nullable
    with pytest.raises(InvalidRecord, match="null"):
        table.upsert(pa.table({"id": pa.array([None], pa.int64()), "n": pa.array([2], pa.int32())}))
    for other in (WIDER, pa.table({"id": [2], "n": ["text"]})):
        with refused(table.uri, SchemaConflict, "column n"):
            table.upsert(other)


def test_narrower_values_take_the_tables_type_under_every_rule(make: Make) -> None:
    table = make(pa.schema([("id", pa.int64()), ("n", pa.float64())]), partition_by=None, ordering=None)
    for at, rule in enumerate(("add", "widen", "strict")):
        narrow = pa.table({"id": [at], "n": pa.array([at], pa.int32())})
        assert table.upsert(narrow, options={OPTION: rule}).schema_changes == ()
    assert values(table) == {0: 0.0, 1: 1.0, 2: 2.0}


def test_numbers_of_python_take_the_tables_width_where_they_fit(make: Make) -> None:
    table = new_table(make)
    assert table.upsert([{"id": 2, "n": 7}]).schema_changes == ("column id may be null now",)
    assert table.upsert({"id": [3], "n": [8]}).schema_changes == ()
    assert values(table) == {1: 1, 2: 7, 3: 8}
    with refused(table.uri, SchemaConflict, "column n is INT"):
        table.upsert([{"id": 4, "n": 2**40}])


def test_a_hudi_job_widens_as_real_hudi_does(make: Make, uri: str) -> None:
    table = new_table(make)
    job = {"hoodie.table.name": table.name, "hoodie.datasource.write.recordkey.field": "id"}
    done = lakebed.write(WIDER, uri, job)
    assert done is not None
    assert done.schema_changes == ("column n is BIGINT now, it was INT",)


def test_an_unknown_rule_is_refused(make: Make) -> None:
    with pytest.raises(InvalidOption, match=OPTION):
        new_table(make, "anything")


@pytest.mark.rest
def test_sizes_and_codecs_given_with_a_table_are_the_tables(make: Make) -> None:
    asked: dict[str, Any] = {"hoodie.parquet.max.file.size": 300_000, "hoodie.parquet.compression.codec": "gzip"}
    table = make(SCHEMA, partition_by=None, ordering=None, properties=asked)
    assert table.properties["lakebed.parquet.max.file.size"] == "300000"
    many = pa.table({"id": range(200_000), "n": pa.array(range(200_000), pa.int32())}, schema=SCHEMA)
    done = table.bulk_insert(many)
    written = [f.base_file.size for f in table.files if f.base_file]
    assert 1 < len(done.files) <= sum(written) // 300_000 + 2
    assert max(written) <= 1.1 * 300_000, written
    assert table.upsert(FIRST, options={"hoodie.parquet.max.file.size": 1 << 20}).inserted == 0
