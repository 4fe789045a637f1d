"""Other engines that are Python packages, in an environment of their own in the cache: DuckDB with its extensions for
Iceberg and Delta Lake, Daft, DataFusion, hudi-rs and ClickHouse (chDB) read tables in one process."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.feather

from .service import ServiceError, cache_folder, one_at_a_time

LOCK = Path(__file__).parents[2] / "locks" / "readers.txt"


def install_readers() -> Path:
    """The interpreter of the environment, made again where the lock file has changed since."""
    home = cache_folder("readers")
    python, mark = home / "bin" / "python", home / "installed.txt"
    with one_at_a_time("readers"):
        if not mark.exists() or mark.read_text() != LOCK.read_text():
            print(f"makes {home}: DuckDB, Daft, DataFusion, chDB and other readers", file=sys.stderr, flush=True)
            venv.create(home, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(LOCK)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise ServiceError(f"pip cannot install the readers: {done.stderr.strip()[-500:]}")
            mark.write_text(LOCK.read_text())
    return python


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
