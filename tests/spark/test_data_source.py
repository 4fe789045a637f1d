"""`spark.read.format("lakebed")`: found by its package name, options, filters, what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSourceReader

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.read.incremental import Changes
from lakebed.read.scan import Scan
from lakebed.storage import open_storage
from support.golden_tables import golden
from support.same_rows import assert_same_rows

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# Up to 4.3.0 Spark answers a query with the files that it planned for another filter.
KEEPS_FILTERS_APART = hasattr(DataSourceReader, "pushLimit")


@pytest.fixture(params=["false", "true"], ids=["plain", "pushdown"])
def session(request: pytest.FixtureRequest, spark: Any) -> Any:
    spark.conf.set(PUSHDOWN, request.param)
    yield spark
    spark.conf.unset(PUSHDOWN)


@pytest.mark.parametrize("name", ["v9_cow_simple", "v9_cow_rich_types"])
def test_the_data_source_reads_all_rows_of_a_table(name: str, tmp_path: Path, session: Any) -> None:
    table = golden(name)
    path = table.unpack(tmp_path)
    frame = session.read.format("lakebed").option("meta", "true").load(str(path))
    assert_same_rows(frame.toArrow(), table.expected)


def test_filters_of_the_data_source_select_the_right_rows(tmp_path: Path, session: Any) -> None:
    path = golden("v9_cow_simple").unpack(tmp_path)
    whole = Scan(open_snapshot(open_storage(str(path))))
    frame = session.read.format("lakebed").load(str(path))
    for condition in (
        "region = 'eu' and qty > 100",
        "region in ('eu', 'us') or qty is null",
        "day < '2000-01-01' and name like 'j%'",
        "not (region <=> 'asia') and amount > 1.5",
        "at >= timestamp '2010-01-01 00:00:00'",
    ):
        mine = Scan(open_snapshot(open_storage(str(path))), where=condition).to_arrow()
        assert_same_rows(frame.filter(condition).toArrow(), mine)
    assert frame.count() == whole.count()


@pytest.mark.rest
def test_one_frame_answers_many_queries(tmp_path: Path, session: Any) -> None:
    path = golden("v9_cow_simple").unpack(tmp_path)
    frame = session.read.format("lakebed").load(str(path))
    _assert_queries_stay_apart(frame)


def test_filters_are_always_pushed_only_where_spark_keeps_them_apart(tmp_path: Path, session: Any) -> None:
    path = golden("v9_cow_simple").unpack(tmp_path)
    reader = session.read.format("lakebed").option("pushdown", "always")
    if KEEPS_FILTERS_APART:
        _assert_queries_stay_apart(reader.load(str(path)))
    else:
        with pytest.raises(Exception, match="pushdown=always would give wrong rows on PySpark"):
            reader.load(str(path))


def _assert_queries_stay_apart(frame: Any) -> None:
    parts = {r: frame.filter(f"region = '{r}'").count() for r in ("eu", "us", "asia")}
    assert min(parts.values()) > 0
    assert frame.count() == sum(parts.values())
    assert frame.filter("true").count() == sum(parts.values())
    both = frame.filter("region = 'eu'").union(frame.filter("region = 'us'")).groupBy("region").count()
    assert {row["region"]: row["count"] for row in both.collect()} == {r: parts[r] for r in ("eu", "us")}


def test_pushed_filters_prune_files(tmp_path: Path, session: Any) -> None:
    path = golden("v9_cow_simple").unpack(tmp_path)
    for file in (path / "us").glob("*.parquet"):
        file.write_bytes(b"\0" * file.stat().st_size)
    # the partition is damaged, so reading works only where it is not opened
    eu = session.read.format("lakebed").load(str(path)).filter("region = 'eu'")
    if KEEPS_FILTERS_APART and session.conf.get(PUSHDOWN) == "true":
        assert eu.count() > 0
    else:
        with pytest.raises(Exception, match="cannot be read as Parquet"):
            eu.count()
    by_option = session.read.format("lakebed").option("where", "region = 'eu'").load(str(path))
    assert by_option.count() > 0


def test_options_of_the_data_source_choose_instant_and_query(tmp_path: Path, spark: Any) -> None:
    path = str(golden("v9_cow_simple").unpack(tmp_path))
    snapshot = open_snapshot(open_storage(path))
    first = snapshot.commits[0]
    reader = spark.read.format("lakebed")
    then = Scan(open_snapshot(open_storage(path), as_of=first.time)).to_arrow()
    assert_same_rows(reader.option("as_of", first.time).load(path).toArrow(), then)
    assert_same_rows(spark.read.format("lakebed").option("as.of.instant", first.time).load(path).toArrow(), then)
    changed = (
        spark.read.format("lakebed")
        .option("hoodie.datasource.query.type", "incremental")
        .option("hoodie.datasource.read.begin.instanttime", first.completion_time)
        .load(path)
    )
    assert_same_rows(changed.toArrow(), Changes(snapshot, first.completion_time or "").to_arrow())
    some = spark.read.format("lakebed").option("columns", "ID, qty").option("where", "region = 'eu'").load(path)
    assert some.columns == ["id", "qty"]
    assert some.count() == Scan(snapshot, where="region = 'eu'").count()


@pytest.mark.rest
@pytest.mark.parametrize("zone", ["Asia/Tokyo", None])
def test_the_filter_option_uses_the_zone_of_the_session(zone: str | None, tmp_path: Path, spark: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    table = lakebed.create(str(tmp_path / "t"), schema, key="id", partition_by="city", index="simple")
    hours = [datetime(2024, 5, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(-24, 48)]
    cities = ["oslo", "rome"] * (len(hours) // 2)
    table.upsert(pa.table({"id": list(range(len(hours))), "city": cities, "at": hours}, schema))
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        if zone is None:
            spark.conf.unset("spark.sql.session.timeZone")
        else:
            spark.conf.set("spark.sql.session.timeZone", zone)
        frame = spark.read.format("lakebed").load(table.uri)
        for condition in (
            "at >= '2024-05-01 00:00:00'",
            "city = 'oslo' and at < timestamp '2024-05-01 12:00:00'",
            "to_date(at) = date '2024-05-01' or id = 3",
            "at >= '2024-05-01 00:00:00Z'",
        ):
            by_option = spark.read.format("lakebed").option("where", condition).load(table.uri)
            found, expected = (
                sorted(row["id"] for row in part.select("id").collect()) for part in (by_option, frame.where(condition))
            )
            assert found == expected, condition
            assert 0 < len(found) < len(hours)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_the_data_source_refuses_what_it_cannot_do_by_name(tmp_path: Path, spark: Any) -> None:
    path = str(golden("v9_cow_simple").unpack(tmp_path))
    with pytest.raises(Exception, match="Did you mean 'as_of'"):
        spark.read.format("lakebed").option("asof", "1").load(path)
    with pytest.raises(Exception, match=r"TableNotFound|no table"):
        spark.read.format("lakebed").load(str(tmp_path / "nothing"))
    with pytest.raises(Exception, match=r"lakebed\.write"):
        spark.range(1).write.format("lakebed").mode("append").save(str(tmp_path / "nothing"))


@pytest.mark.rest
def test_a_table_of_sparks_catalog_is_refused_and_a_view_reads_the_rows(tmp_path: Path, spark: Any) -> None:
    path = golden("v9_cow_simple").unpack(tmp_path)
    for where in (f"LOCATION '{path}'", f"OPTIONS (path '{path}')", f"LOCATION '{path}' COMMENT 'mine'"):
        with pytest.raises(AnalysisException, match=r"cannot hold a table of lakebed(?s:.*)CREATE TEMPORARY VIEW"):
            spark.sql(f"CREATE TABLE of_lakebed USING lakebed {where}")
        assert not spark.catalog.tableExists("of_lakebed")
    spark.sql(f"CREATE TEMPORARY VIEW of_lakebed USING lakebed OPTIONS (path '{path}')")
    rows = spark.sql("SELECT * FROM of_lakebed").toArrow()
    assert_same_rows(rows, Scan(open_snapshot(open_storage(str(path)))).to_arrow())
    spark.catalog.dropTempView("of_lakebed")
