"""Make golden tables anew: real Hudi repeats the recorded steps of a table, and reads back what it wrote.

    python tests/interop/make_golden.py v9_cow_simple v9_cow_bucket_simple --dest /tmp/golden

Each table becomes `NAME.zip`, `NAME.expected.parquet`, `NAME.more.zip` and an entry in `manifest.json` in the folder,
which LAKEBED_GOLDEN may then name. Instants and file ids differ from the recorded ones; rows do not. Tables of older
releases need their own bundle (`--hudi 1.0.2`), and steps done by hand cannot be repeated.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oracle.client import HudiOracle, OracleError
from oracle.environment import RELEASE, oracle_environment
from support.golden_tables import GoldenTable, golden

WRITES = ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite", "insert_overwrite_table", "delete_partition")
# What every recorded step had besides its own options.
COMMON = {
    "hoodie.index.bloom.num_entries": "2000",
    "hoodie.bloom.index.filter.dynamic.max.entries": "8000",
}


class NotRepeatable(Exception):
    """A step that real Hudi cannot be told to do again."""


def repeat(table: GoldenTable, oracle: HudiOracle, scratch: Path) -> Path:
    """The table made anew, in a folder below `scratch`."""
    target = scratch / table.name
    for number, step in enumerate(table.entry["steps"]):
        options = {**COMMON, **_indexes(table), **table.entry["options"], **step.get("options", {})}
        if step["op"] == "sql":
            oracle.ask("sql", sql=step["sql"], table=target, conf=step.get("options", {}))
        elif step["op"] not in WRITES or "inputs" in step:
            raise NotRepeatable(f"step {number} of {table.name}: {step.get('description', step['op'])}")
        else:
            _write(oracle, target, table, step, options)
    return target


def _write(oracle: HudiOracle, target: Path, table: GoldenTable, step: dict[str, Any], options: dict[str, str]) -> None:
    request = {"table": target, "operation": step["op"], "options": options, "keep_indexes": False}
    with tempfile.NamedTemporaryFile(suffix=".parquet") as data:
        pq.write_table(table.more(step["input"]), data.name)
        try:
            oracle.ask("write", data=data.name, **request)
        except OracleError:
            if not step.get("failed_on_purpose"):
                raise


def _indexes(table: GoldenTable) -> dict[str, str]:
    kept = table.entry["metadata_partitions"]
    return {} if "column_stats" in kept else {"hoodie.metadata.index.column.stats.enable": "false"}


def pack(table: GoldenTable, made: Path, oracle: HudiOracle, dest: Path) -> dict[str, Any]:
    """Write the table's files into `dest`; gives its manifest entry."""
    expected = oracle.read(made, option=table.entry["read_options"])
    pq.write_table(expected, dest / f"{table.name}.expected.parquet", compression="zstd")
    _zip(made, dest / f"{table.name}.zip")
    inputs = [step["input"] for step in table.entry["steps"] if "input" in step]
    with zipfile.ZipFile(dest / f"{table.name}.more.zip", "w", zipfile.ZIP_DEFLATED) as more:
        for name in inputs:
            buffer = io.BytesIO()
            pq.write_table(table.more(name), buffer)
            more.writestr(name, buffer.getvalue())
        more.writestr("fileslices.json", json.dumps(oracle.ask("file_slices", table=made)["partitions"]))
        more.writestr("timeline.json", json.dumps(oracle.ask("timeline", table=made)["instants"]))
        if table.version == 6:
            more.writestr("mtimes.json", json.dumps(_modified(made)))
    snapshot = {"rows": expected.num_rows, "columns": expected.column_names}
    return {**table.entry, "expectations": {"snapshot": snapshot}, "checks": {}, "timeline": []}


def _zip(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if not path.name.endswith(".crc"):
                archive.write(path, path.relative_to(folder))


def _modified(folder: Path) -> dict[str, int]:
    files = (path for path in (folder / ".hoodie").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns // 10**6 for path in files}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--dest", type=Path, required=True)
    parser.add_argument("--hudi", default=RELEASE, help="the release of the bundle")
    given = parser.parse_args()
    given.dest.mkdir(parents=True, exist_ok=True)
    found = oracle_environment(given.hudi)
    entries: list[dict[str, Any]] = []
    oracle = HudiOracle(found, given.dest / "oracle.log")
    try:
        for name in given.names:
            with tempfile.TemporaryDirectory() as scratch:
                table = golden(name)
                entries.append(pack(table, repeat(table, oracle, Path(scratch)), oracle, given.dest))
                print(name, entries[-1]["expectations"]["snapshot"]["rows"], "rows")
    except NotRepeatable as reason:
        print(reason, file=sys.stderr)
        return 1
    finally:
        oracle.close()
        (given.dest / "manifest.json").write_text(json.dumps({"tables": entries}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
