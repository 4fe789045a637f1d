"""Every public method, given values of wrong types: lakebed's own errors alone, never one of Python's."""

from __future__ import annotations

import inspect
from contextlib import suppress
from datetime import datetime
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lakebed
from lakebed.config.arguments import TAKEN
from lakebed.errors import InvalidOption, LakebedError
from lakebed.read.cdc import ChangeLog
from lakebed.read.incremental import Changes
from lakebed.read.scan import Scan
from lakebed.table import Table
from lakebed.table_catalogs import CatalogsView
from lakebed.table_indexes import IndexesView
from lakebed.table_maintenance import MaintenanceView
from lakebed.table_savepoints import SavepointsView
from support.sampling import some

ROWS = pa.table({"id": [1, 2], "city": ["a", "b"], "ts": [1, 1]})
WRONG = [None, 7, 1.5, True, "no such thing", b"bytes", [], [None], [[1]], {1: 2}, object(), ROWS]
EMPTY = pa.table({name: pa.chunked_array([], ROWS.schema.field(name).type) for name in ROWS.column_names})
WRONG += [np.array([1, 2]), ROWS.column("id"), EMPTY, pa.compute.field("id"), pd.DataFrame({"id": [1, "a"]})]
WRONG += [-1, 0, np.array(5), pd.NaT, pd.Timestamp("2026-11-24"), datetime(1, 1, 1), datetime.max]
WRONG += [pa.table([[1], [2]], names=["id", "id"])]
RIGHT: dict[str, Any] = {
    "data": ROWS,
    "upsert": ROWS,
    "keys": [1],
    "partitions": ["a"],
    "settings": {"hoodie.compact.inline": True},
    "start": "000",
    "name": "record_index",
    "index": "bucket",
    "file_groups": 1,
    "column": "city",
}
# What these do to a table is undone by a new one.
CHANGING = ("delete", "delete_partitions", "insert_overwrite", "restore", "rollback", "upgrade", "downgrade", "repair")
_numbers = count()


def new_table() -> Table:
    uri = f"memory://wrong-arguments/{next(_numbers)}"
    table = lakebed.create(uri, ROWS, key="id", partition_by="city", ordering="ts", index="bucket", buckets=1)
    table.upsert(ROWS)
    return table


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a text is a path, too


@pytest.fixture(scope="module")
def table() -> Table:
    return new_table()


def methods(owner: Any) -> list[str]:
    return [name for name, member in inspect.getmembers(owner, inspect.isfunction) if not name.startswith("_")]


def is_refused_or_done(call: Any, **arguments: Any) -> None:
    """What Python raises by itself fails the test."""
    with suppress(LakebedError):
        call(**arguments)


def try_all(call: Any, signature: inspect.Signature, fresh: Any = None) -> None:
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    needed = {p.name: RIGHT.get(p.name) for p in named if p.default is p.empty and p.name != "self"}
    for parameter in (p.name for p in named if p.name != "self"):
        for wrong in WRONG:
            method = call if fresh is None else fresh()
            try:
                is_refused_or_done(method, **{**needed, parameter: wrong})
            except Exception as error:
                error.add_note(f"{parameter}={wrong!r}"[:200])
                raise


# methods that change their table get a new one for each wrong argument, which takes ten seconds
@pytest.mark.parametrize("name", some(methods(Table), *(name for name in methods(Table) if name not in CHANGING)))
def test_methods_of_a_table_raise_lakebeds_errors_alone(name: str, table: Table) -> None:
    signature = inspect.signature(getattr(Table, name))
    fresh = (lambda: getattr(new_table(), name)) if name in CHANGING else None
    try_all(getattr(table, name), signature, fresh)


def test_a_text_for_columns_is_one_column_not_its_letters() -> None:
    rows = pa.table({"id": [1, 2], "i": [10, 20], "d": [100, 200]})
    uri = f"memory://wrong-arguments/{next(_numbers)}"
    logged = {"hoodie.table.cdc.enabled": True}
    table = lakebed.create(uri, rows, key="id", index="bucket", buckets=1, properties=logged)
    table.upsert(rows)
    ids = rows.select(["id"])
    assert table.scan("id").to_arrow().equals(ids)
    assert table.to_arrow(columns="id").equals(ids)
    assert table.to_pandas(columns="id").equals(ids.to_pandas())
    assert table.get([1, 2], columns="id").equals(ids)
    assert table.changes("000", columns="id").to_arrow().equals(ids)
    assert table.cdc("000", columns="id").to_arrow()["after"].to_pylist() == [{"id": 1}, {"id": 2}]
    assert table.join(table, columns="id").to_arrow().equals(ids)
    with table.consume("reader", columns="id") as batch:
        assert batch.to_arrow().equals(ids)
    assert table.indexes.ranges("id").to_arrow()["column"].to_pylist() == ["id"]
    table.indexes.use("simple")
    table.indexes.use("bucket", hash_fields="id", buckets=2)
    assert table.properties["lakebed.index.bucket.fields"] == "id"
    with pytest.raises(InvalidOption, match="no column 'di' in the table"):
        table.scan("di").to_arrow()


@pytest.mark.parametrize("version", [9, 6])
def test_a_range_of_commits_that_ends_before_it_begins_is_refused(version: int) -> None:
    uri = f"memory://wrong-arguments/{next(_numbers)}"
    logged = {"hoodie.table.cdc.enabled": True}
    table = lakebed.create(uri, ROWS, key="id", index="bucket", buckets=1, table_version=version, properties=logged)
    first, second = table.upsert(ROWS), table.upsert(ROWS)
    words = f"begins at {second.checkpoint}, which is after its end {first.checkpoint}"
    with pytest.raises(InvalidOption, match=words):
        table.changes(second.checkpoint, first.checkpoint).to_arrow()
    with pytest.raises(InvalidOption, match=words):
        table.cdc(second.instant, first.instant).to_arrow()
    with pytest.raises(InvalidOption, match="which is after its end"):
        table.changes(second.checkpoint, datetime(2020, 1, 1)).count()
    assert table.changes(second.checkpoint, second.checkpoint).count() == 0
    assert table.changes(first.checkpoint, second.checkpoint).to_arrow()["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("version", [9, 6])
def test_a_range_of_commits_begins_and_ends_at_times_of_the_calendar_up_to_now(version: int) -> None:
    uri = f"memory://wrong-arguments/{next(_numbers)}"
    logged = {"hoodie.table.cdc.enabled": True}
    table = lakebed.create(uri, ROWS, key="id", index="bucket", buckets=1, table_version=version, properties=logged)
    instant = table.upsert(ROWS).instant
    wrong = ("20261301000000000", "20260101250000", "20260001", "99999999999999999", "1" * 30, "２０２６１１２")
    for time in wrong:
        with pytest.raises(InvalidOption, match=f"as_of '{time}' is no time"):
            table.scan(as_of=time)
        for start, end in ((time, None), ("000", time)):
            with pytest.raises(InvalidOption, match=f"'{time}' is no time"):
                table.changes(start, end).to_arrow()
            with pytest.raises(InvalidOption, match=f"'{time}' is no time"):
                table.cdc(start, end).to_arrow()
    for read in (lambda: table.scan(as_of="2026"), lambda: table.changes("2026").to_arrow()):
        with pytest.raises(InvalidOption, match="has no version 2026"):  # few digits are a number of a version
            read()
    for late in ("29990101000000000", "29990101", "2999-01-01", datetime(2999, 1, 1)):
        with pytest.raises(InvalidOption, match=r"start 29990101.* is in the future: .* latest time of table"):
            table.changes(late).to_arrow()
        with pytest.raises(InvalidOption, match=r"start 29990101.* is in the future: .* latest time of table"):
            table.cdc(late).to_arrow()
    assert table.changes("0000", "2999-01-01").count() == table.changes("00000000000001").count() == 2
    assert table.changes(instant[:8]).count() == 2
    assert table.changes(instant, datetime.now()).count() == 0


def test_a_limit_beyond_all_numbers_of_arrow_gives_all_rows() -> None:
    assert sorted(new_table().scan().head(1 << 70)["id"].to_pylist()) == [1, 2]


def test_a_negative_number_of_rows_is_refused_by_the_method_that_was_called() -> None:
    table = new_table()
    for method, named in ((table.head, "head"), (table.scan().head, "head"), (table.scan().limit, "limit")):
        with pytest.raises(InvalidOption, match=rf"^{named}\(\) takes a whole number of at least 0 as rows, not -1"):
            method(-1)


VIEWS: list[tuple[str, type]] = [
    *(("indexes", IndexesView), ("savepoints", SavepointsView)),
    *(("catalogs", CatalogsView), ("maintenance", MaintenanceView)),
]
OF_VIEWS = [f"{view}.{name}" for view, owner in VIEWS for name in methods(owner)]


# methods that change their table get a new one for each wrong argument, which takes ten seconds
@pytest.mark.parametrize(
    "name", some(OF_VIEWS, *(name for name in OF_VIEWS if name.rpartition(".")[2] not in CHANGING))
)
def test_methods_of_views_raise_lakebeds_errors_alone(name: str) -> None:
    table = new_table()
    method = attrgetter(name)
    fresh = (lambda: method(new_table())) if name.startswith("maintenance.") and name[12:] in CHANGING else None
    try_all(method(table), inspect.signature(method(table)), fresh)


@pytest.mark.parametrize(
    "name",
    [
        *("create", "open", "write", "list_tables", "drop", "sql"),
        *("maintenance.repair", "maintenance.doctor", "maintenance.run", "indexes.advise", "polars.scan"),
    ],
)
def test_functions_of_the_package_raise_lakebeds_errors_alone(name: str, table: Table) -> None:
    function = attrgetter(name)(lakebed)
    signature = inspect.signature(function)
    job = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    for parameter in signature.parameters:
        for wrong in WRONG:
            uri = table.uri
            if name in ("create", "write"):
                uri = f"memory://wrong-arguments/{next(_numbers)}"
            elif name == "drop":
                uri = lakebed.create(f"memory://wrong-arguments/{next(_numbers)}", ROWS, key="id").uri
            right: dict[str, Any] = {"uri": uri, "schema_or_data": ROWS, "key": "id", "df": ROWS}
            if name == "indexes.advise":
                right["data"] = ROWS
            if name == "sql":
                right |= {"text": "select 1", "tables": None}
            if name == "polars.scan":
                right["table"] = table
            if name == "maintenance.run":
                right |= {"tables": [uri], "once": True, "dry_run": True}
            if name == "write":
                right["options"] = job
            arguments = {k: v for k, v in right.items() if k in signature.parameters}
            is_refused_or_done(function, **{**arguments, parameter: wrong})


class RemoteFrame(list[str]):
    """A frame whose rows are in a cluster, as Dask has them: it is iterated by the names of its columns."""

    columns = ("id",)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: t.scan(columns=7), "scan() takes a name or a list of names as columns, not 7"),
        (lambda t: t.upsert(ROWS, options=["a"]), "upsert() takes a dict of option names and values as options"),
        (lambda t: t.get(7), "keys are given as a collection, not as int"),
        (lambda t: t.get(RemoteFrame(["id"])), "keys are given as a collection, not as RemoteFrame"),
        (lambda t: t.changes(7_000).end, "has no version 7000"),
        (lambda t: t.maintenance.clean(dry_run="yes"), "clean() takes True or False as dry_run, not 'yes'"),
        (lambda t: t.restore(7_000), "has no version 7000"),
        (lambda t: lakebed.open(7), "open() takes a path or a URI as uri, not 7"),
        (
            lambda t: lakebed.create(t.uri + "x", ROWS, key="id", index=7),
            "an index is a name or an Index object, not int",
        ),
        (lambda t: t.indexes.advise(deletes="no"), "advise() takes True or False as deletes, not 'no'"),
        (lambda t: t.indexes.create("record_index", partitioned="no"), "takes True or False as partitioned, not 'no'"),
        (lambda t: t.upsert(ROWS.column("id")), "cannot take rows from pyarrow.lib.ChunkedArray"),
        (
            lambda t: lakebed.maintenance.run(7),
            "run() takes a name, a path or a URI, or a list of them as tables",
        ),
        (lambda t: lakebed.spark.by_buckets(ROWS), "by_buckets() takes a Spark DataFrame"),
        (lambda t: t.scan().to_spark(bucketed="yes"), "to_spark() takes"),
        (lambda t: lakebed.open(t.uri, spark="local"), "open() takes a Spark session as spark, not 'local'"),
    ],
    ids=[
        *("columns", "options", "keys", "remote keys", "start", "dry_run", "to", "uri", "index"),
        *("deletes", "partitioned", "data", "tables", "frame", "bucketed", "spark"),
    ],
)
def test_an_error_says_what_is_taken(call: Any, said: str, table: Table) -> None:
    with pytest.raises(InvalidOption) as refused:
        call(table)
    assert said in str(refused.value)


# What these take is more than a type: the methods look themselves.
LOOKED_AT = {
    *("data", "upsert", "schema_or_data", "df", "batch", "frame", "keys"),
    *("condition", "args", "text", "table", "functions", "source", "create_options", "set", "values", "keys_by_table"),
    *("on", "other", "index", "merge", "to", "file_groups", "bucketed", "conditions", "stop"),
    *("vector", "path", "offset", "length", "warehouse"),
    *("checkpoint", "job", "max_local_bytes", "on_event", "operation", "output_mode", "t", "trigger"),
}


def test_every_argument_names_the_values_that_it_accepts() -> None:
    owners = [Table, *(owner for _, owner in VIEWS), Scan, Changes, ChangeLog]
    public = [(name, getattr(owner, name)) for owner in owners for name in methods(owner)]
    for module in (lakebed, lakebed.maintenance, lakebed.indexes, lakebed.polars, lakebed.spark):
        public += [one for one in inspect.getmembers(module, inspect.isfunction) if one[0] in module.__all__]
    named = {(name, parameter) for name, function in public for parameter in inspect.signature(function).parameters}
    assert sorted((n, p) for n, p in named if p not in {*TAKEN, *LOOKED_AT, "self", "options"}) == []


def test_an_argument_of_almost_a_parameters_name_is_refused_with_that_name() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'partition'; did you mean 'partition_by'"):
        lakebed.create("memory://wrong-arguments/name", ROWS, key="id", partition="city")  # pyright: ignore[reportCallIssue]
