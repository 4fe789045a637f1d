"""Keys, partition paths and buckets against real Hudi's answers (hudi_keys.json, made by
tests/interop/make_key_vectors.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import LakebedError
from lakebed.expressions.bucket import Bucket
from lakebed.expressions.key_generators import KeyGenerator, KeyGeneratorSpec, key_generator
from support.key_vectors import rows_of

VECTORS = json.loads((Path(__file__).parent / "hudi_keys.json").read_text(encoding="utf-8"))
CASES = VECTORS["cases"]


def generator_of(case: dict[str, Any]) -> KeyGenerator:
    spec = {name: tuple(value) if isinstance(value, list) else value for name, value in case["spec"].items()}
    return key_generator(KeyGeneratorSpec(**spec))


@pytest.mark.parametrize("case", [c for c in CASES if "rows" in c["hudi"]], ids=lambda c: c["name"])
def test_equals_what_real_hudi_wrote(case: dict[str, Any]) -> None:
    batch = rows_of(case["columns"]).to_batches()[0]
    keys = generator_of(case)
    buckets = Bucket(keys, tuple(case["bucket_fields"]), VECTORS["buckets"])
    columns = [keys.record_key.arrow(batch), keys.partition_path.arrow(batch), buckets.arrow(batch)]
    ours = [list(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
    assert ours == case["hudi"]["rows"]


@pytest.mark.parametrize("case", [c for c in CASES if "error" in c["hudi"]], ids=lambda c: c["name"])
def test_what_real_hudi_refuses_has_no_key_or_no_path(case: dict[str, Any]) -> None:
    batch = rows_of(case["columns"]).to_batches()[0]
    try:
        keys = generator_of(case)
        found = keys.record_key.arrow(batch).to_pylist() + keys.partition_path.arrow(batch).to_pylist()
    except LakebedError:
        return
    assert None in found


def test_the_vectors_cover_every_key_generator_and_come_from_the_pinned_release() -> None:
    assert VECTORS["hudi"] == "1.2.0"
    kinds = {case["spec"]["kind"] for case in CASES if "rows" in case["hudi"]}
    assert kinds == {"SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM", "GLOBAL_DELETE"}
