"""Files of rows that tasks staged: how they are read, and which leftovers are removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

from lakebed.spark_sink.staging import Staged, StagedRows, job_folder, remove_earlier, stream_folder
from lakebed.storage import open_storage
from lakebed.storage.base import Storage


def put(storage: Storage, path: str, rows: pa.Table) -> Staged:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    storage.write(path, sink.getvalue().to_pybytes())
    return Staged(path, rows.num_rows, rows.nbytes, "q")


def test_staged_rows_are_those_of_the_files_that_are_named() -> None:
    storage = open_storage("memory://sink/staged")
    folder = stream_folder("q", 3)
    files = [put(storage, f"{folder}/{n}.arrow", pa.table({"id": [n], "n": [n * 10]})) for n in range(3)]
    rows = StagedRows(storage, [files[0], files[2]])
    assert rows.table().to_pydict() == {"id": [0, 2], "n": [0, 20]}
    assert [batch.to_pydict() for batch in rows.batches(["n"])] == [{"n": [0]}, {"n": [20]}]
    assert (rows.rows, rows.nbytes) == (2, 32)
    storage.delete_folder("")


def test_leftovers_of_earlier_batches_and_old_ones_of_others_are_removed(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    folders = [stream_folder("q", 1), stream_folder("q", 2), stream_folder("q", 3), stream_folder("r", 1)]
    folders += [job_folder("old"), job_folder("new"), ".hoodie/.temp/20261126000000000"]
    for folder in folders:
        storage.write(f"{folder}/0.arrow", b"rows")
    long_ago = time.time() - 8 * 24 * 3600
    for folder in (job_folder("old"), ".hoodie/.temp/20261126000000000"):
        os.utime(tmp_path / folder / "0.arrow", (long_ago, long_ago))
    remove_earlier(storage, "q", 2)
    assert sorted(storage.list_folders(".hoodie/.temp")) == [
        "20261126000000000",
        "stream-q-3",
        "stream-r-1",
        "write-new",
    ]
