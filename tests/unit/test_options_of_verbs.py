"""Each verb that commits to a table or takes its lock takes `options=`, and goes by them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.table import Table
from lakebed.table_catalogs import CatalogsView
from lakebed.table_checks import ChecksView
from lakebed.table_columns import ColumnsView
from lakebed.table_consumers import ConsumersView
from lakebed.table_indexes import IndexesView
from lakebed.table_maintenance import MaintenanceView
from lakebed.table_savepoints import SavepointsView

# Methods that only read, or delete one file without the lock.
WITHOUT: dict[type, set[str]] = {
    Table: {
        "cdc",
        "changes",
        "count",
        "dataset",
        "diff",
        "exists",
        "get",
        "head",
        "history",
        "to_polars",
        "join",
        "locate",
        "merge",
    }
    | {"read_blob", "sample", "scan", "search", "stage", "to_arrow", "to_pandas"},
    MaintenanceView: set(),
    SavepointsView: {"list", "to_arrow", "to_polars"},
    CatalogsView: {"list", "to_arrow", "to_polars"},
    IndexesView: {
        "advise",
        "bloom_rates",
        "layers",
        "list",
        "ranges",
        "recall",
        "skew",
        "to_arrow",
        "to_polars",
        "verify",
    },
    ChecksView: {"list", "run", "to_arrow", "to_polars"},
    ColumnsView: {"to_arrow", "to_polars"},
    ConsumersView: {"delete", "get", "list", "to_arrow", "to_polars"},
}
# No connection can be made by it: the verb that takes the lock says what it lacks.
LOCK: dict[str, Any] = {"hoodie.write.lock.provider": "ZookeeperBasedLockProvider"}
LACKS = "hoodie.write.lock.zookeeper.url"
ROWS = {"id": [1, 2]}
CALLS: dict[str, Callable[[Table, dict[str, Any]], object]] = {
    "savepoint": lambda t, options: t.savepoints.create(options=options),
    "delete_savepoint": lambda t, options: t.savepoints.delete(t.savepoints.create().instant, options=options),
    "publish": lambda t, options: t.catalogs.publish("delta", options=options),
    "consume": lambda t, options: t.consume("daily", options=options).__enter__(),
    "consumers.start": lambda t, options: t.consumers.start("daily", options=options),
    "erase": lambda t, options: t.erase([1], options=options),
    "restore": lambda t, options: t.restore(t.savepoints.create(), options=options),
}


def loaded(name: str) -> Table:
    return lakebed.load(f"memory://options-of-verbs/{name}", ROWS, key="id")


@pytest.mark.parametrize("kind", WITHOUT, ids=lambda kind: kind.__name__)
def test_every_verb_but_the_listed_ones_takes_options(kind: type) -> None:
    methods = {name: method for name, method in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
    without = {name for name, method in methods.items() if "options" not in inspect.signature(method).parameters}
    assert without == WITHOUT[kind]


@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_takes_the_lock_that_its_options_name(verb: str) -> None:
    table = loaded(verb)
    with pytest.raises(lakebed.InvalidOption, match=LACKS):
        CALLS[verb](table, LOCK)
    assert table.count() == 2
    assert CALLS[verb](loaded(f"{verb}-without"), {}) is not None


def test_a_moved_consumer_goes_by_the_options() -> None:
    table = loaded("move")
    table.consumers.start("daily", "latest")
    with pytest.raises(lakebed.InvalidOption, match="unknown option"):
        table.consumers.move("daily", "earliest", options={"hoodie.write.lock.provder": "x"})
    assert table.consumers.get("daily").lag_commits == 0
    assert (
        table.consumers.move("daily", "earliest", options={"hoodie.write.lock.client.num_retries": 1}).lag_commits == 1
    )


def test_commands_give_their_options_to_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    table = loaded("commands")
    option = ["--option", f"hoodie.write.lock.provider={LOCK['hoodie.write.lock.provider']}"]
    for command in (["savepoints", "create", table.uri], ["catalogs", "publish", table.uri, "delta"]):
        assert invoke([*command, *option]) == 5
        assert LACKS in capsys.readouterr().err
    saved = table.savepoints.create()
    assert invoke(["savepoints", "delete", table.uri, saved.instant, *option]) == 5
    assert [one.instant for one in table.savepoints.list()] == [saved.instant]
    table.consumers.start("daily", "latest")
    assert invoke(["consumers", "move", table.uri, "daily", "--option", "hoodie.write.lock.provder=x"]) == 5
    assert table.consumers.get("daily").lag_commits == 0
