"""Published lists as Spark reads them with the libraries of Delta Lake and Iceberg, after random operations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.feather
import pytest

import lakebed
from conftest import unavailable
from support.published import PublishedHistory, expected_rows, sorted_rows

from .service import ServiceError, java_home
from .spark_jars import list_jars

STEPS = 20


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_spark_reads_the_rows_of_the_table_from_its_published_lists(tmp_path: Path, kind: str) -> None:
    try:
        jars, java = list_jars(), java_home()
    except ServiceError as error:
        unavailable(str(error))
    history = PublishedHistory(str(tmp_path / "t"), seed=11, kind=kind)
    for _ in range(STEPS):
        history.step()
        try:
            result = history.table.catalogs.publish("delta")
            history.table.catalogs.publish("iceberg")
        except lakebed.UnsupportedFeature:
            continue
        history.note(result)
    uri = history.table.uri
    expected: list[Any] = []
    reads: list[list[Any]] = []

    def read(form: str, version: str | None, rows: Any) -> None:
        expected.append(rows)
        reads.append([form, uri, version, str(tmp_path / f"{len(reads)}.arrow")])

    newest = expected_rows(history.table)
    read("delta", None, newest)
    read("iceberg", None, newest)
    readable = [*history.readable_versions().items()]
    assert len(readable) >= 2
    for version, rows in readable[:: max(1, len(readable) // 3)]:
        read("delta", str(version), rows)
        read("iceberg", history.versions[version][0], rows)
    task = tmp_path / "task.json"
    task.write_text(json.dumps({"jars": jars, "reads": reads}))
    command = [sys.executable, str(Path(__file__).with_name("list_readers.py")), str(task)]
    environment = {**os.environ, "JAVA_HOME": str(java), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    for (form, _, version, target), rows in zip(reads, expected, strict=True):
        assert sorted_rows(pyarrow.feather.read_table(target)) == rows, (form, version)
