"""Real pipelines of dlt into tables: equal to what dlt itself makes of the same loads in DuckDB."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed

dlt = pytest.importorskip("dlt", reason="dlt is not installed")

from dlt.pipeline.exceptions import PipelineStepFailed  # noqa: E402

from lakebed.dlt_destination import Lakebed  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No telemetry, nothing in the home, and no second of sleep between two looks at the jobs."""
    from dlt.load import load

    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("RUNTIME__LOG_LEVEL", "CRITICAL")
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    made = load.Load.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self._run_loop_sleep_duration = 0.02

    monkeypatch.setattr(load.Load, "__init__", init)


@pytest.fixture
def uri() -> str:
    return f"memory://dlt/{uuid.uuid4().hex}"


def pipeline(destination: Any, folder: Path, name: str = "shop") -> Any:
    return dlt.pipeline(name, destination=destination, dataset_name="d", pipelines_dir=str(folder))


def rows(uri: str, table: str, *columns: str) -> list[dict[str, Any]]:
    found = lakebed.open(f"{uri}/d/{table}").to_arrow()
    names = columns or tuple(name for name in found.column_names if not name.startswith("_hoodie"))
    return sorted(found.select(list(names)).to_pylist(), key=str)


def trips(loads: list[dict[str, Any]], **hints: Any) -> Any:
    hints = {"primary_key": "id", "write_disposition": "merge"} | hints
    return dlt.resource(loads, name="trips", **hints)


def without(found: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    return sorted(({k: v for k, v in row.items() if k not in columns} for row in found), key=str)


def test_merges_are_those_of_dlt_in_duckdb(uri: str, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    dice = random.Random(4)
    loads: list[list[dict[str, Any]]] = []
    live: set[int] = set()  # dlt in DuckDB stores a row that is marked as deleted where it is not there
    for load in range(3):
        ids = dice.sample(range(7), 5)
        loads.append(
            [
                {
                    "id": n,
                    "city": f"c{load}",
                    "fare": n / 4,
                    "gone": n in live and dice.random() < 0.4,
                    "tags": [
                        {"k": f"t{load}-{tag}", "in": list(range(dice.randint(0, 2)))}
                        for tag in range(dice.randint(0, 3))
                    ],
                    **({"note": f"n{n}"} if load == 1 else {}),
                }
                for n in ids
            ]
        )
        live = {*live, *ids} - {row["id"] for row in loads[-1] if row["gone"]}
    hints = {"columns": {"gone": {"data_type": "bool", "hard_delete": True}}}
    merge = {"write_disposition": {"disposition": "merge", "strategy": "upsert"}}
    ours = pipeline(Lakebed(uri), tmp_path / "ours")
    theirs = pipeline(dlt.destinations.duckdb(str(tmp_path / "x.duckdb")), tmp_path / "theirs")
    for load in loads:
        ours.run(trips(load, **hints))
        theirs.run(trips(load, **hints, **merge))
        for table in ("trips", "trips__tags", "trips__tags__in"):
            with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as connection:
                expected = connection.sql(f"SELECT * FROM d.{table}").to_arrow_table().to_pylist()
            assert without(rows(uri, table), "_dlt_load_id") == without(expected, "_dlt_load_id"), table
    assert {row["load_id"] for row in rows(uri, "_dlt_loads")} >= {row["_dlt_load_id"] for row in rows(uri, "trips")}


def test_replaced_tables_have_the_rows_of_the_last_load_alone(uri: str, tmp_path: Path) -> None:
    p = pipeline(Lakebed(uri, create={"type": "mor"}), tmp_path)
    p.run(trips([{"id": 1, "tags": [1, 2]}, {"id": 2, "tags": [3]}], write_disposition="replace"))
    p.run(trips([{"id": 2, "tags": []}, {"id": 2, "tags": []}], write_disposition="replace"))
    assert rows(uri, "trips", "id") == [{"id": 2}, {"id": 2}]
    assert rows(uri, "trips__tags") == []
    assert lakebed.open(f"{uri}/d/trips").properties["hoodie.table.type"] == "MERGE_ON_READ"
    p.run(trips([], write_disposition="replace"))
    assert rows(uri, "trips") == []


@pytest.mark.rest
def test_rows_are_appended_also_from_arrow_and_with_new_columns(uri: str, tmp_path: Path) -> None:
    p = pipeline(Lakebed(uri), tmp_path)
    for load in ([{"id": 1, "tags": ["a"]}], [{"id": 1, "city": "rome", "tags": ["b"]}]):
        p.run(trips(load, write_disposition="append"))
    assert rows(uri, "trips", "id", "city") == [{"id": 1, "city": "rome"}, {"id": 1, "city": None}]
    assert rows(uri, "trips__tags", "value") == [{"value": "a"}, {"value": "b"}]
    for n in range(2):
        p.run(pa.table({"x": [n], "y": [0.5]}), table_name="arrows", write_disposition="append")
    assert rows(uri, "arrows") == [{"x": 0, "y": 0.5}, {"x": 1, "y": 0.5}]
    p.run(pa.table({"x": [1], "y": [1.5]}), table_name="keyed", write_disposition="merge", primary_key="x")
    p.run(pa.table({"x": [1], "y": [2.5]}), table_name="keyed", write_disposition="merge", primary_key="x")
    assert rows(uri, "keyed") == [{"x": 1, "y": 2.5}]


@pytest.mark.rest
def test_a_fresh_machine_goes_on_from_the_state_in_the_dataset(uri: str, tmp_path: Path) -> None:
    asked: list[int] = []

    @dlt.resource(name="numbers", primary_key="n", write_disposition="append")
    def numbers(end: int, n: Any = dlt.sources.incremental("n", initial_value=-1)) -> Iterator[dict[str, int]]:  # noqa: B008
        asked.append(n.last_value)
        yield from ({"n": number} for number in range(n.last_value + 1, end))

    pipeline(Lakebed(uri), tmp_path / "first").run(numbers(3))
    other = pipeline(Lakebed(uri), tmp_path / "second")
    other.run(numbers(5))
    assert asked == [-1, 2]
    assert [row["n"] for row in rows(uri, "numbers", "n")] == [0, 1, 2, 3, 4]
    restored = pipeline(Lakebed(uri), tmp_path / "third")
    restored.sync_destination()
    assert restored.default_schema.version_hash == other.default_schema.version_hash


@pytest.mark.rest
def test_a_refresh_drops_or_empties_the_tables_of_a_source(uri: str, tmp_path: Path) -> None:
    p = pipeline(Lakebed(uri), tmp_path)
    p.run(trips([{"id": 1, "city": "rome"}], write_disposition="append"))
    with pytest.raises(PipelineStepFailed, match=r"record key _dlt_id, and rows are merged by id"):
        p.run(trips([{"id": 1, "city": "oslo"}]))
    p.abort_packages()
    p.run(trips([{"id": 2, "city": "oslo"}]), refresh="drop_resources")
    assert rows(uri, "trips", "id", "city") == [{"id": 2, "city": "oslo"}]
    p.run(trips([{"id": 3, "city": "lima"}]), refresh="drop_data")
    assert rows(uri, "trips", "id", "city") == [{"id": 3, "city": "lima"}]


_DIES = """
import os, sys
import dlt
from dlt.load import load
from lakebed.dlt_destination import Lakebed
from lakebed.dlt_destination.chain import TableChain

made = load.Load.__init__

def init(self, *args, **kwargs):
    made(self, *args, **kwargs)
    self._run_loop_sleep_duration = 0.02

load.Load.__init__ = init
write, left = TableChain._write, [int(sys.argv[3])]

def dying(self, loaded, rows):
    if self.tables[0].name == "trips":
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
    write(self, loaded, rows)

TableChain._write = dying
p = dlt.pipeline("shop", destination=Lakebed(sys.argv[1]), dataset_name="d", pipelines_dir=sys.argv[2])
if not p.has_pending_data:
    data = [{"id": n, "tags": [{"k": n, "in": [1, 2]}]} for n in range(3)]
    p.run(dlt.resource(data, name="trips", primary_key="id", write_disposition="append"))
else:
    p.run()
"""


@pytest.mark.rest
@pytest.mark.parametrize("tables", [0, 1, 2], ids=["before_the_first_table", "after_one_table", "before_the_root"])
def test_a_pipeline_that_died_between_its_tables_appends_each_row_once(tables: int, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    environment = {**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false"}
    for last, code in ((str(tables), 9), ("99", 0)):
        command = [sys.executable, "-c", _DIES, str(root), str(tmp_path / "work"), last]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == code, done.stderr[-2000:]
        there = sum(
            len(lakebed.list_tables(f"{root}/d/{name}", depth=0))
            for name in ("trips", "trips__tags", "trips__tags__in")
        )
        assert there == (tables if code else 3)
    assert [row["id"] for row in rows(str(root), "trips", "id")] == [0, 1, 2]
    assert [row["k"] for row in rows(str(root), "trips__tags", "k")] == [0, 1, 2]
    assert [row["value"] for row in rows(str(root), "trips__tags__in", "value")] == [1, 1, 1, 2, 2, 2]


def test_without_dlt_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "dlt" or "dlt_destination" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dlt", None)
    with pytest.raises(lakebed.UnsupportedFeature, match=r"lakebed\[dlt\]"):
        import_module("lakebed.dlt_destination")


@pytest.mark.parametrize("nested", [True, False])
def test_one_key_twice_in_a_package_is_refused_where_there_are_nested_tables(
    uri: str, tmp_path: Path, nested: bool
) -> None:
    def trip(n: int, city: str, *tags: str) -> dict[str, Any]:
        return {"id": n, "city": city} | ({"tags": [{"k": tag} for tag in tags]} if nested else {})

    shop = pipeline(Lakebed(uri), tmp_path)
    shop.run(trips([trip(1, "rome", "a", "b"), trip(2, "oslo", "c")]))
    package = trips([trip(1, "bern", "d", "e", "f"), trip(1, "bern", "g")])
    if nested:
        with pytest.raises(PipelineStepFailed, match=r"several rows of the key \{'id': 1\} of the table trips"):
            shop.run(package)
        assert rows(uri, "trips", "id", "city") == [{"id": 1, "city": "rome"}, {"id": 2, "city": "oslo"}]
        assert rows(uri, "trips__tags", "k") == [{"k": "a"}, {"k": "b"}, {"k": "c"}]
    else:
        shop.run(package)
        assert rows(uri, "trips", "id", "city") == [{"id": 1, "city": "bern"}, {"id": 2, "city": "oslo"}]
