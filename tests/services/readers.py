"""Other engines that are Python packages, in an environment of their own in the cache: DuckDB with its extensions for
Iceberg and Delta Lake, Daft, DataFusion, hudi-rs and ClickHouse (chDB) read tables in one process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.feather

from .service import installed_environment

LOCK = Path(__file__).parents[2] / "locks" / "readers.txt"


def install_readers() -> Path:
    """The interpreter of the environment, made again where the lock file has changed since."""
    return installed_environment("readers", LOCK, "DuckDB, Daft, DataFusion, chDB and other readers")


def rows_by_readers(reads: Sequence[tuple[str, str]], folder: Path, s3: dict[str, str] | None = None) -> list[pa.Table]:
    """The rows of each read, a reader's name (`reader_script.READERS`) and a URI, all in one process. `s3` is where
    chDB finds `s3://` URIs: endpoint and keys. Raises AssertionError with the message of a reader that failed."""
    task = folder / "reads.json"
    targets = [str(folder / f"{number}.arrow") for number in range(len(reads))]
    task.write_text(json.dumps({"s3": s3, "reads": [[*read, t] for read, t in zip(reads, targets, strict=True)]}))
    script = Path(__file__).with_name("reader_script.py")
    command = [str(install_readers()), str(script), str(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return [pyarrow.feather.read_table(target) for target in targets]
