"""Pre-commit validators: a write is committed if their queries hold over the rows before and after it, else not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.config.settings import ValidationSettings
from lakebed.errors import InvalidOption, ValidationFailed
from lakebed.operations.precommit import Validation, _check_query, refusals_of_engine, validations_of
from lakebed.storage.memory import MemoryStorage
from support.crash_tables import leftovers

NAME = "validators"
URI = f"memory://{NAME}/t"
OPTION = "hoodie.precommit.validators"
JAVA = "org.apache.hudi.client.validator."
FIRST = {"id": [1, 2, 3], "city": ["Oslo", "Rome", "Rome"], "fare": [1.0, 2.0, None]}


@pytest.fixture(autouse=True)
def _dropped() -> Iterator[None]:
    MemoryStorage.drop(NAME)
    yield
    MemoryStorage.drop(NAME)


def created(**settings: Any) -> lakebed.Table:
    kind: dict[str, Any] = {"type": "mor", "index": "bucket", "buckets": 1} | settings
    t = lakebed.create(URI, FIRST, key="id", partition_by="city", **kind)
    t.upsert(FIRST)
    return t


def single(*queries: str, **more: Any) -> dict[str, Any]:
    name = f"{JAVA}SqlQuerySingleResultPreCommitValidator"
    return {OPTION: name, f"{OPTION}.single.value.sql.queries": ";".join(queries), **more}


def equality(*queries: str) -> dict[str, Any]:
    return {OPTION: "SqlQueryEqualityPreCommitValidator", f"{OPTION}.equality.sql.queries": ";".join(queries)}


def inequality(*queries: str) -> dict[str, Any]:
    return {OPTION: "SqlQueryInequalityPreCommitValidator", f"{OPTION}.inequality.sql.queries": ";".join(queries)}


def test_options_are_read_as_queries() -> None:
    settings = ValidationSettings(
        (f"{JAVA}SqlQueryEqualityPreCommitValidator", "SqlQuerySingleResultPreCommitValidator"),
        equality_queries="select 1; select 2;",
        inequality_queries="select 3",
        single_value_queries="select count(*) from <TABLE_NAME>#4; select 5 # 5",
    )
    assert validations_of(settings) == (
        Validation("equality", "select 1"),
        Validation("equality", "select 2"),
        Validation("single value", "select count(*) from <TABLE_NAME>", "4"),
        Validation("single value", "select 5", "5"),
    )
    assert validations_of(ValidationSettings()) == ()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({OPTION: "com.example.Checks"}, "Checks, which is no validator of lakebed"),
        ({OPTION: "org.apache.hudi.utilities.streamer.validator.SparkKafkaOffsetValidator"}, "no validator of lakebed"),
        (equality(" ; "), "has no query"),
        (single("select 1"), "not a query, one # and the expected value"),
        (single("select 1#2#3"), "not a query, one # and the expected value"),
        ({**single("select 1#1"), f"{OPTION}.failure.policy": "LATER"}, "failure.policy"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_before_the_write(options: dict[str, Any], error: str) -> None:
    t = created()
    with pytest.raises(InvalidOption, match=error):
        t.upsert({"id": [9], "city": ["Oslo"], "fare": [9.0]}, options=options)
    assert len(t.timeline) == 1


HOLD = [
    single("select count(*) from <TABLE_NAME> where fare < 0#0", "select max(id) from <TABLE_NAME>#9"),
    single("select 1.5#1.5", "select true#true", "select 'Oslo'#Oslo", "select id from <TABLE_NAME> where id = 9#9"),
    equality("select id from <TABLE_NAME> where id < 9", "select 1"),
    equality("select city, count(*) from <TABLE_NAME> where _hoodie_record_key <> '9' group by city order by city"),
    inequality("select count(*) from <TABLE_NAME>", "select * from <TABLE_NAME>"),
]
FAIL = [
    (single("select count(*) from <TABLE_NAME>#1"), "1", "2"),
    (single("select null#null"), "null", "null"),
    (single("select id from <TABLE_NAME>#1"), "1", "several rows"),
    (single("select id from <TABLE_NAME> where id = 77#77"), "77", "no rows"),
    (single("select 1#1", "select 2#3"), "3", "2"),
    (equality("select id from <TABLE_NAME>"), "the rows from before the write", "0 rows less and 1 row more"),
    (equality("select sum(id) from <TABLE_NAME>"), "the rows from before the write", "1 row less and 1 row more"),
    (inequality("select id from <TABLE_NAME> where id < 9"), "other rows", "the same rows"),
    (inequality("select count(*) from <TABLE_NAME> where id < 0"), "other rows", "the same rows"),
]


@pytest.mark.parametrize("options", HOLD)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_write_whose_queries_hold_is_committed(kind: str, options: dict[str, Any]) -> None:
    t = created(type=kind)
    t.upsert({"id": [9], "city": ["Oslo"], "fare": [9.0]}, options=options)
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 9]


@pytest.mark.parametrize(("options", "expected", "found"), FAIL)
def test_a_write_whose_query_does_not_hold_leaves_nothing(options: dict[str, Any], expected: str, found: str) -> None:
    t = created()
    with pytest.raises(ValidationFailed) as caught:
        t.upsert({"id": [9], "city": ["Oslo"], "fare": [9.0]}, options=options)
    assert (caught.value.context["expected"], caught.value.context["found"]) == (expected, found)
    assert repr(caught.value.context["query"]) in caught.value.message
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert leftovers(URI) == []
    assert t.indexes.verify().ok


def test_the_table_of_a_query_is_the_partition_paths_that_the_write_touches() -> None:
    t = created()
    nulls = single("select count(*) from <TABLE_NAME> where fare is null#0")
    t.upsert({"id": [9], "city": ["Oslo"], "fare": [9.0]}, options=nulls)
    with pytest.raises(ValidationFailed):
        t.upsert({"id": [10], "city": ["Rome"], "fare": [9.0]}, options=nulls)
    t.upsert({"id": [3], "city": ["Rome"], "fare": [3.0]}, options=nulls)
    assert t.count() == 4


def test_queries_know_new_columns_of_a_write_and_the_rows_that_it_replaces() -> None:
    t = created(type="cow")
    rows = {"id": [9], "city": ["Oslo"], "fare": [9.0], "note": ["new"]}
    widen = {"lakebed.write.evolution": "widen"}
    options = {**equality("select count(note) from <TABLE_NAME> where id < 9"), **widen}
    t.upsert(rows, options=options)
    with pytest.raises(ValidationFailed):
        t.delete_partitions("Rome", options=equality("select count(*) from <TABLE_NAME>"))
    with pytest.raises(ValidationFailed):
        t.insert_overwrite(rows, "table", options=single("select count(*) from <TABLE_NAME>#4"))
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 9]


def test_a_query_that_cannot_be_run_names_itself_and_nothing_is_committed() -> None:
    t = created()
    with pytest.raises(InvalidOption, match=r"'select nothing from <TABLE_NAME>' cannot be run.*nothing"):
        t.delete([1], options=single("select nothing from <TABLE_NAME>#1"))
    assert t.count() == 3
    assert leftovers(URI) == []


def test_a_query_that_does_not_hold_may_be_a_warning_alone(caplog: pytest.LogCaptureFixture) -> None:
    t = created()
    options = single("select count(*) from <TABLE_NAME>#77", **{f"{OPTION}.failure.policy": "WARN_LOG"})
    with caplog.at_level(logging.WARNING, logger="lakebed"):
        t.upsert({"id": [9], "city": ["Oslo"], "fare": [9.0]}, options=options)
    assert [record.message for record in caplog.records if "expects 77, and gives 2" in record.message]
    assert t.count() == 4


def test_a_table_records_its_validators_for_every_write_and_stage() -> None:
    t = created()
    t.configure(single("select count(*) from <TABLE_NAME> where fare < 0#0"))
    bad = {"id": [9], "city": ["Oslo"], "fare": [-9.0]}
    with pytest.raises(ValidationFailed):
        lakebed.open(URI).upsert(bad)
    with pytest.raises(ValidationFailed):
        t.bulk_insert(bad)
    with t.stage() as staged:
        staged.upsert(bad)
        assert staged.count(where="fare < 0") == 1
        with pytest.raises(ValidationFailed):
            staged.commit()
    assert (t.count(), leftovers(URI)) == (3, [])
    assert t.upsert({"id": [9], "city": ["Oslo"], "fare": [9.0]}).inserted is None
    assert t.count() == 4


def test_recorded_queries_reach_no_files(tmp_path: Path) -> None:
    t = created()
    evil, secret = tmp_path / "evil.csv", tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    more = {"id": [9], "city": ["Oslo"], "fare": [9.0]}
    for query in (
        f"copy (select 1) to '{evil}'#1",
        f"select count(*) from read_csv('{secret}')#1",
        f"select count(*) from '{secret}'#1",
        "install httpfs#1",
        f"attach '{tmp_path / 'other.db'}'#1",
        "set enable_external_access = true#1",
        "create table kept as select 1#1",
        "insert into <TABLE_NAME> values (1)#1",
    ):
        with pytest.raises(InvalidOption, match="cannot be run"):
            t.upsert(more, options=single(query))
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    t.upsert(more, options=single("select count(*) from <TABLE_NAME> where fare > 8#1"))
    assert t.count() == 4
    with pytest.raises(InvalidOption, match="cannot be evaluated"):
        t.checks.add("reads", f"count(*) > (select count(*) from read_csv('{secret}'))", on="table")


REFUSED_ON_SPARK = {
    "select 1; drop table v": "not one SELECT",
    "insert into v select * from v": "not one SELECT",
    "insert overwrite directory '/tmp/x' select * from v": "not one SELECT",
    "create table x as select * from v": "not one SELECT",
    "from v insert into x select id": "not one SELECT",
    "drop table v": "not one SELECT",
    "select count(*) from parquet.`/etc/x`": "reads parquet.`/etc/x`",
    "select count(*) from csv.`/etc/x`, v": "reads csv.`/etc/x`",
    "select count(*) from v where id in (select id from other)": "reads other",
    "select count(*) from sales.v": "reads sales.v",
    "select count(*) from of_the_session(3)": "reads OF_THE_SESSION",
    "select * from identifier('parquet.`/etc/x`')": "IDENTIFIER|identifier",
    "with a as (select * from a) select * from a": "reads a,",
    "select (with a as (select 1) select * from a) from a": "reads a,",
    "select transform(id) using 'cat' as (x string) from v": "runs a program",
    "select reflect('java.lang.System', 'exit', 0) from v": "calls reflect",
    "select java_method('java.lang.System', 'exit', 0) from v": "calls java_method",
    "select * from v -- \\\n/*\nparquet.`/etc/x` -- \\\n*/": "several ways",
    "select '${env:HOME}' from v": "several ways",
    "selec": "not one SELECT",
}
TAKEN_ON_SPARK = (
    "select count(`fare`) from v where fare < 0",
    "with a as (select * from v), b as (select * from a) select max(id) div 1 from b -- the last",
    "select transform(array(1), x -> x + 1) from V union all (select id from v order by id)",
    "select /*+ BROADCAST(v) */ count(*) from v lateral view explode(array(1, 2)) l as x",
    "select count(*) from (select * from v) as w join (values (1)) as o (id) on w.id = o.id and o.id rlike '\\\\d'",
)


def test_on_spark_a_query_is_one_select_of_the_table() -> None:
    for query, error in REFUSED_ON_SPARK.items():
        with pytest.raises(InvalidOption, match=error), refusals_of_engine("no query", "", {}):
            _check_query(query, frozenset("v"), is_raw=False)
    for query in TAKEN_ON_SPARK:
        _check_query(query, frozenset("v"), is_raw=False)
    with pytest.raises(InvalidOption, match="several ways"), refusals_of_engine("no query", "", {}):
        _check_query(TAKEN_ON_SPARK[-1], frozenset("v"), is_raw=True)
