"""Which packages and rooms the first calls of a process import: none that nothing asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import lakebed

# Of lakebed, its packages counted, by the index of the table: the simple one skips files by statistics.
MAX_MODULES_OF_A_GET = {"bucket": 150, "simple": 170}
# What the calls of every day have no use for.
_UNUSED = ("pandas", "pyspark", "polars", "duckdb", "pyarrow.dataset", "boto3", "kazoo", "typer", "rich")
_CALLS = """
import sys
import lakebed, pyarrow as pa

folder, _ = sys.argv[1], lakebed.Table  # from here on pyarrow leaves pandas for later; its own calls would import it
types = {"id": pa.int64(), "name": pa.string(), "city": pa.string(), "fare": pa.float64(), "ts": pa.timestamp("us")}
data = {"id": [1, 2], "name": ["a", "b"], "city": ["rome", "oslo"], "fare": [9.5, 12.0], "ts": [1, 1]}
rows = pa.table({name: pa.array(values, types[name]) for name, values in data.items()})
layouts = [
    ("cow", "bucket", None, "id"),
    ("mor", "record", "city", "id"),
    ("cow", "bloom", "city", "name"),
    ("cow", "global_simple", "city", "name"),
    ("mor", "bucket", None, "name"),
    ("mor", "record", "city", ["name", "id"]),
]
for number, (kind, index, partition_by, key) in enumerate(layouts):
    layout = {"type": kind, "index": index, "partition_by": partition_by}
    t = lakebed.create(f"{folder}/{number}", rows, key=key, ordering="ts", **layout)
    t.upsert(rows)
    t.upsert(rows)
    t = lakebed.open(f"{folder}/{number}")
    names = key if isinstance(key, list) else [key]
    one, other = rows.slice(0, 1).select(names), rows.slice(1).select(names)
    assert t.get(other)["city"].to_pylist() == ["oslo"]
    assert t.scan(where="fare > 10 and city = 'oslo'").to_arrow()["id"].to_pylist() == [2]
    assert t.scan(where="name in ('b', 'c')").to_arrow()["id"].to_pylist() == [2]
    assert t.changes("0").to_arrow().num_rows == t.count() == 2
    t.delete(one)
    t.maintenance.compact() if kind == "mor" else t.maintenance.cluster()
print(*(name for name in sys.argv[2:] if name in sys.modules))
"""
_PANDAS_LATER = """
import lakebed
lakebed.Table
import sys, pyarrow as pa
assert "pandas" not in sys.modules
import pandas as pd
times = pd.to_datetime(["2020-01-01", None], utc=True)
frame = pd.DataFrame({"a": [1, None], "c": pd.Categorical(["x", "y"]), "t": times})
columns = {"a": [1.0, None], "c": ["x", "y"], "t": frame["t"]}
print(pa.Table.from_pandas(frame).to_pylist() == pa.table(columns).to_pylist())
print(pa.array(pd.Series([1, None])).null_count, pa.array([pd.NaT, pd.Timestamp(0)], from_pandas=True).null_count)
categories = pa.array(pd.Categorical(["x"]))
print(pa.types.is_dictionary(categories.type), pa.array(pd.array([1, None], "Int64")).type, pa.table(frame).num_rows)
print(type(pa.scalar(1, pa.timestamp("ns")).as_py()).__name__, pa.table({"a": [1]}).to_pandas()["a"].tolist())
"""


def _output(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_calls_over_arrow_data_import_no_package_that_they_do_not_use(tmp_path: Path) -> None:
    assert _output(_CALLS, str(tmp_path), *_UNUSED).split() == []


_OPEN_AND_GET = """
import sys, lakebed
assert lakebed.open(sys.argv[1]).get([2])["city"].to_pylist() == ["oslo"]
print(*sorted(name for name in sys.modules if name.startswith("lakebed.")))
"""
_UPSERT = """
import sys, lakebed, pyarrow as pa
lakebed.Table
assert lakebed.open(sys.argv[1]).upsert(pa.table({"id": [2], "city": ["oslo"], "fare": [1.5], "ts": [2]})).updated == 1
print(*sorted(name for name in sys.modules if name.startswith("lakebed.")))
"""
# Rooms, or modules, of which these calls run nothing.
_NOT_FOR_WRITES = (
    *("statements", "queries", "diagnosis", "ingestion", "inspector", "spark_sink", "spark_source"),
    *(
        "cli",
        "loading",
        "maintenance",
        "table_maintenance",
        "table_indexes",
        "table_checks",
        "table_columns",
        "table_catalogs",
    ),
    *("read.cdc", "services.repair", "services.erasure", "services.restore", "filters.sql"),
)
_NOT_FOR_READS = (
    *(*_NOT_FOR_WRITES, "services", "handles", "metadata_upkeep", "concurrency", "policies", "table_views"),
    *("engine.spark", "engine.local", "read.scan", "read.incremental", "filters.predicates", "catalog.base"),
    *("operations.hudi_job", "operations.create", "operations.pipeline", "operations.merge", "inputs.files"),
    *("metadata_kinds.record_index", "metadata_kinds.column_stats", "format.parquet_writer", "slices.logs"),
    *("format.column_ranges", "timeline.bodies.plans"),
)


def _imported_of(rooms: tuple[str, ...], modules: str) -> list[str]:
    return [name for name in modules.split() for room in rooms if f"{name}.".startswith(f"lakebed.{room}.")]


def test_a_read_imports_no_room_of_writes_and_a_write_none_of_what_it_does_not_run(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "city": ["rome", "oslo"], "fare": [9.5, 12.0], "ts": [1, 1]})
    lakebed.create(str(tmp_path), rows, key="id", ordering="ts", index="bucket").upsert(rows)
    read = _output(_OPEN_AND_GET, str(tmp_path))
    assert _imported_of(_NOT_FOR_READS, read) == []
    assert len(read.split()) <= MAX_MODULES_OF_A_GET["bucket"], "import what few calls run where they run it"
    assert _imported_of(_NOT_FOR_WRITES, _output(_UPSERT, str(tmp_path))) == []


def test_pyarrow_takes_pandas_data_as_ever_once_pandas_is_imported() -> None:
    assert _output(_PANDAS_LATER).splitlines() == [
        "True",
        "1 1",
        "True int64 2",
        "Timestamp [1]",
    ]


def test_help_and_version_of_the_program_import_no_arrow_and_no_engine() -> None:
    heavy = (
        *("pyarrow", "numpy", "lakebed.table", "lakebed.services", "sqlglot", "rich", "lakebed.config"),
        *("hashlib", "html", "webbrowser"),
    )
    help_only = "from lakebed.cli.main import invoke\ninvoke(['--help'])"
    version_only = "import sys\nfrom lakebed.cli.start import run\nsys.argv[1:] = ['--version']\nrun()"
    for code, unused in ((help_only, heavy), (version_only, (*heavy, "typer"))):
        code += f"\nimport sys\nprint('imported', *(name for name in {unused} if name in sys.modules))"
        assert _output(code).splitlines()[-1] == "imported", code


_LOOKUP = """
import sys
from lakebed.cli.main import invoke
assert invoke(["get", sys.argv[1], "2"]) == 0
print("imported", *sorted(name for name in sys.modules))
"""


def test_a_lookup_of_the_program_imports_what_a_lookup_in_python_does_and_the_commands(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "city": ["rome", "oslo"], "fare": [9.5, 12.0], "ts": [1, 1]})
    lakebed.create(str(tmp_path), rows, key="id", ordering="ts", index="bucket").upsert(rows)
    modules = _output(_LOOKUP, str(tmp_path)).splitlines()[-1].removeprefix("imported ")
    unused = tuple(name for name in _NOT_FOR_READS if name not in ("cli", "maintenance", "engine.local"))
    of_lakebed = " ".join(name for name in modules.split() if not name.startswith("lakebed.cli"))
    assert _imported_of(unused, of_lakebed) == []
    assert {"rich", "sqlglot", "webbrowser", "pandas"} & {*modules.split()} == set()


# All but `catalog.registry`, which tells the URI of a catalog's entry from that of a table.
_CATALOGS = ("catalog.base", "catalog.metastore", "catalog.hive", "catalog.glue", "catalog.rest", "catalog.unity")


def test_a_write_of_a_table_that_is_not_published_imports_neither_publishers_nor_catalogs(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "city": ["rome", "oslo"], "fare": [9.5, 12.0], "ts": [1, 1]})
    lakebed.create(str(tmp_path), rows, key="id", ordering="ts", index="bucket").upsert(rows)
    assert _imported_of(("publish", *_CATALOGS), _output(_UPSERT, str(tmp_path))) == []


def test_a_lookup_by_statistics_imports_no_index_that_the_table_does_not_have(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "city": ["rome", "oslo"], "fare": [9.5, 12.0], "ts": [1, 1]})
    lakebed.create(str(tmp_path), rows, key="id", ordering="ts", index="simple").upsert(rows)
    read = _output(_OPEN_AND_GET, str(tmp_path))
    others = ("metadata_kinds.secondary_index", "metadata_kinds.expression_index", "concurrency", "metadata_upkeep")
    assert _imported_of(others, read) == []
    assert len(read.split()) <= MAX_MODULES_OF_A_GET["simple"], "import what few calls run where they run it"
