"""`where` and `select` of lazy reads: they chain, and mean what the arguments of the read mean."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.table import Table

ROWS = pa.table({"id": [1, 2, 3, 4], "city": ["oslo", "rome", "rome", "oslo"], "fare": [9.5, 12.0, 7.25, None]})


@pytest.fixture(scope="module")
def table() -> Table:
    logged = {"hoodie.table.cdc.enabled": True}
    uri = "memory://chained-reads/trips"
    table = lakebed.create(
        uri, ROWS, key="id", partition_by="city", index="bucket", buckets=1, hash_fields="id", properties=logged
    )
    table.upsert(ROWS)
    return table


def test_conditions_of_a_scan_add_up_whatever_they_are_written_in(table: Table) -> None:
    rome = pc.field("city") == "rome"
    expected = [{"id": 2, "city": "rome", "fare": 12.0}]
    for reads in (
        table.scan().where("city = 'rome'").where("fare > 8"),
        table.scan().where("city = 'rome' -- a comment").where("fare > 8 or false"),
        table.scan(where="city = 'rome'").where(pc.field("fare") > 8),
        table.scan(where=rome).where(pc.field("fare") > 8),
        table.scan().where(rome).where("fare > 8"),
        table.scan().where("fare > 5").where(rome).where("FARE > 8").where("id < 9"),
    ):
        assert reads.to_arrow().to_pylist() == expected, reads
        assert reads.count() == 1
    assert table.scan().where("city = 'rome' or id = 1").where("fare > 9").select("id").to_arrow().num_rows == 2
    assert table.scan().where("fare > 100").where("fare < 0").to_arrow().num_rows == 0


def test_each_condition_rules_out_files(table: Table) -> None:
    read = table.scan().where("fare > 8").where("city = 'rome'")
    assert [row["pruned_by"] for row in read.pruning().to_pylist()] == [None, "partition"]


def test_a_condition_that_is_no_condition_by_itself_is_refused(table: Table) -> None:
    for wrong in ("id > 1) or (true", "id >", 7):
        with pytest.raises(InvalidOption):
            table.scan().where("id > 0").where(wrong).to_arrow()  # pyright: ignore[reportArgumentType]


def test_sql_for_spark_alone_and_an_expression_for_arrow_alone_are_not_one_condition(table: Table) -> None:
    arrow_alone = pc.starts_with(pc.field("city"), "r")  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UnsupportedFeature, match="a SQL condition that only Spark evaluates, and an Arrow expression"):
        table.scan().where("soundex(city) = 'R500'").where(arrow_alone).to_arrow()


def test_columns_of_select_replace_those_of_the_read_in_their_order(table: Table) -> None:
    assert table.scan().select("fare", "ID").to_arrow().column_names == ["fare", "id"]
    assert table.scan(["city"]).select(["id", "fare"]).to_arrow().column_names == ["id", "fare"]
    assert table.scan().select("id", "city").select("city").to_arrow().column_names == ["city"]
    assert table.scan(where="city = 'rome'").select("id").to_arrow()["id"].to_pylist() == [2, 3]
    with pytest.raises(InvalidOption, match="no column 'di' in the table"):
        table.scan().select("di").to_arrow()
    with pytest.raises(InvalidOption, match=r"select\(\) takes a name or a list of names as columns, not 7"):
        table.scan().select(7)  # pyright: ignore[reportArgumentType]


def test_a_read_that_was_planned_stays_as_it_is(table: Table) -> None:
    read = table.scan()
    assert read.to_arrow().num_rows == 4
    assert read.where("id = 1").to_arrow().num_rows == 1
    assert read.select("id").to_arrow().column_names == ["id"]
    assert (read.to_arrow().num_rows, read.to_arrow().column_names) == (4, ["id", "city", "fare"])


def test_reads_of_changes_take_conditions_and_columns_later(table: Table) -> None:
    changes = table.changes("000").where("city = 'rome'").select("fare", "id").where("fare < 10")
    assert changes.to_arrow().to_pylist() == [{"fare": 7.25, "id": 3}]
    assert changes.end == table.changes("000").end


def test_a_change_log_is_read_with_some_columns(table: Table) -> None:
    log = table.cdc("000")
    assert log.to_arrow()["after"].to_pylist()[0].keys() == {"id", "city", "fare"}
    assert [row["id"] for row in log.select("id").to_arrow()["after"].to_pylist()] == [1, 4, 2, 3]
    assert log.to_arrow()["after"].to_pylist()[0].keys() == {"id", "city", "fare"}


def test_a_join_takes_conditions_and_columns_later(table: Table) -> None:
    joined = table.join(table, on="id")
    assert joined.count() == 4
    read = joined.where("fare > 8").select("id", "fare_right").where("city_right = 'rome'")
    assert read.to_arrow().to_pylist() == [{"id": 2, "fare_right": 12.0}]
    assert joined.count() == 4
    with pytest.raises(InvalidOption, match="'none'"):
        joined.select("none")
    with pytest.raises(InvalidOption, match="'none'"):
        joined.where("none = 1")
