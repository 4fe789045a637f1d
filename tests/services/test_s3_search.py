"""The requests and bytes of searches on an S3 server: by a vector index, as the first of a process and again."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Generator
from typing import Any
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from conftest import unavailable

from .s3_server import S3
from .service import ServiceError

ROWS, DIMENSION = 20_000, 32
SEARCHED = (7, 7_003)
# One search needs so many requests at most, and so many bytes of their answers.
FIRST, AGAIN = (40, 6 << 20), (10, 5 << 20)
_SEARCHES = """
import json, sys
from urllib.request import urlopen
import lakebed

uri, options, endpoint = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
table = lakebed.open(uri, storage_options=options)
for query in json.loads(sys.argv[4]):
    rows = table.search(query, 10, metric="l2", columns=["id"])
    print(json.dumps([rows.to_arrow()["id"].to_pylist(), json.loads(urlopen(endpoint + "/-/counts").read())]))
"""


@pytest.fixture(scope="module")
def s3() -> Generator[dict[str, Any]]:
    try:
        server = S3().start()
    except ServiceError as error:
        unavailable(str(error))
    yield server.info
    server.stop()


def counts(s3: dict[str, Any]) -> dict[str, int]:
    with urlopen(f"{s3['endpoint']}/-/counts") as answer:
        return json.loads(answer.read())


def rows_of(vectors: np.ndarray) -> pa.Table:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    return pa.table([pa.array(range(len(vectors)), pa.int64()), column], ["id", "emb"])


def test_a_search_by_a_vector_index_makes_few_requests_and_reads_few_bytes(s3: dict[str, Any]) -> None:
    uri = f"s3://lake/{uuid.uuid4().hex}/notes"
    schema = pa.schema([("id", pa.int64()), ("emb", lakebed.vector(DIMENSION))])
    table = lakebed.create(uri, schema, key="id", storage_options=s3["options"])
    vectors = np.random.default_rng(0).normal(size=(ROWS, DIMENSION)).astype(np.float32)
    table.upsert(rows_of(vectors))
    table.indexes.create("vector", column="emb", metric="l2", clusters=128)
    table.upsert(rows_of(vectors[:100]))
    before = counts(s3)
    queries = json.dumps(vectors[list(SEARCHED)].tolist())
    command = [sys.executable, "-c", _SEARCHES, uri, json.dumps(s3["options"]), s3["endpoint"], queries]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    measured: list[tuple[int, int]] = []
    for row, line in zip(SEARCHED, lines, strict=True):
        ids, after = json.loads(line)
        assert (ids[0], len(ids)) == (row, 10)
        measured.append((after["requests"] - before["requests"], after["bytes"] - before["bytes"]))
        before = after
    for (requests, size), (most, most_bytes) in zip(measured, (FIRST, AGAIN), strict=True):
        assert requests <= most
        assert size <= most_bytes
