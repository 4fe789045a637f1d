"""Indexes that are made or dropped between the plan of a table service and its end: the service tells those that there
are when it completes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lakebed
from lakebed.services import cleaning
from lakebed.services.service import ServiceTransaction
from lakebed.table import Table
from support.crash_tables import put, rows, state
from support.sampling import HISTORIES, todays_of

QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.global.record.level.index.min.filegroup.count": 2,
}
NEW_FILES = {"hoodie.parquet.small.file.limit": 0, "lakebed.write.tasks": 1}
SERVICES: dict[str, Callable[[Table], Any]] = {
    "clean": lambda t: t.maintenance.clean(options={"hoodie.clean.commits.retained": 1}),
    "cluster": lambda t: t.maintenance.cluster(["v"]),
    "compact": lambda t: t.maintenance.compact(options={"hoodie.compact.inline.max.delta.commits": 1}),
    "compact_logs": lambda t: t.maintenance.compact(logs=True, options={"hoodie.log.compaction.blocks.threshold": 2}),
}
INDEXES: dict[str, Callable[[Table], Any]] = {
    "bloom_filters": lambda t: t.indexes.create("bloom_filters"),
    "column_stats": lambda t: t.indexes.create("column_stats"),
    "record_index": lambda t: t.indexes.create("record_index"),
    "expression": lambda t: t.indexes.create("by_upper", column="v", function="upper"),
    "built beside": lambda t: (t.indexes.create("bloom_filters", wait=False), t.indexes.build()),
}
NAMES = {"expression": "by_upper", "built beside": "bloom_filters"}
_numbers = itertools.count()


def serviced(service: str, version: int) -> tuple[Table, dict[int, tuple[str, str, int]]]:
    """A table on which the service has something to do."""
    table = lakebed.create(
        f"memory://indexes-beside-services/t{next(_numbers)}",
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor" if service.startswith("compact") else "cow",
        index="global_simple",
        table_version=version,
        properties=QUIET,
    )
    given = [[(n, f"c{n % 2}", f"v{n}", n) for n in range(start, 6)] for start in (0, 2, 4)]
    model: dict[int, tuple[str, str, int]] = {}
    for some in given:
        table.upsert(rows(*some), options=NEW_FILES)
        model = put(model, *some)
    return table, model


@contextmanager
def before_the_end(do: Callable[[], object]) -> Iterator[None]:
    """It happens when the service has done its work and is about to complete."""
    done: list[bool] = []

    def held(finish: Any) -> Any:
        def call(self: Any, *given: Any) -> Any:
            if not done:
                done.append(True)
                do()
            return finish(self, *given)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServiceTransaction, "finish", held(ServiceTransaction.finish))
        patch.setattr(cleaning, "finish_clean", held(cleaning.finish_clean))
        yield
    assert done


CASES = todays_of(list(SERVICES), list(INDEXES), (9, 8, 6), parts=2, variable=HISTORIES)


def skip_impossible(service: str, index: str, version: int) -> None:
    if version < 9 and index == "expression":
        pytest.skip("expression indexes are of version 9")
    if version < 8 and (index == "built beside" or service == "compact_logs"):
        pytest.skip("from version 8 on")


@pytest.mark.parametrize(("service", "index", "version"), CASES)
def test_a_service_updates_an_index_made_since_its_plan(service: str, index: str, version: int) -> None:
    skip_impossible(service, index, version)
    if version < 8:
        pytest.skip("none is built while an action is pending")
    table, model = serviced(service, version)
    other = lakebed.open(table.uri)
    with before_the_end(lambda: INDEXES[index](other)):
        SERVICES[service](table)
    verified = lakebed.open(table.uri).indexes.verify()
    assert verified.ok, verified
    assert state(table.uri) == model


@pytest.mark.parametrize(("service", "index", "version"), CASES)
def test_a_service_leaves_an_index_dropped_since_its_plan(service: str, index: str, version: int) -> None:
    skip_impossible(service, index, version)
    table, model = serviced(service, version)
    INDEXES[index](table)
    other = lakebed.open(table.uri)
    with before_the_end(lambda: other.indexes.drop(NAMES.get(index, index))):
        SERVICES[service](table)
    table = lakebed.open(table.uri)
    assert [one.name for one in table.indexes.list()] == ["files"]
    assert table.indexes.verify().ok
    assert state(table.uri) == model
    INDEXES[index](table)
    assert table.indexes.verify().ok


@pytest.mark.parametrize("version", [9, 8])
@pytest.mark.parametrize("index", list(INDEXES))
def test_an_index_that_is_made_of_files_that_a_clean_is_about_to_delete_loses_them(index: str, version: int) -> None:
    skip_impossible("clean", index, version)
    table, model = serviced("clean", version)
    delete_files, done = cleaning.delete_files, list[bool]()

    def held(*given: Any) -> None:
        if not done:
            done.append(True)
            INDEXES[index](lakebed.open(table.uri))
        delete_files(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "delete_files", held)
        assert table.maintenance.clean(options={"hoodie.clean.commits.retained": 1}).runs
    assert done
    verified = lakebed.open(table.uri).indexes.verify()
    assert verified.ok, verified
    assert state(table.uri) == model
