"""A job whose options cannot be taken is told everything at once, and how to write it instead."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption, UnsupportedFeature

JOB = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
ROWS = pa.table({"id": [1]})


def test_all_reasons_come_at_once() -> None:
    wrong = {
        "hoodie.indx.type": "BUCKET",
        "hoodie.parquet.compression.codec": "lzo",
        "hoodie.parquet.max.file.size": "large",
        "hoodie.index.type": "BUCKET",
    }
    with pytest.raises(InvalidOption, match="3 options cannot be taken") as refused:
        resolve_options(wrong)
    text = str(refused.value)
    assert "1. unknown option hoodie.indx.type. Did you mean hoodie.index.type?" in text
    assert "hoodie.parquet.compression.codec=lzo is not supported" in text
    assert "hoodie.parquet.max.file.size='large' is not a whole number above 0" in text
    assert [p.get("option") for p in refused.value.context["problems"]] == [
        "hoodie.indx.type",
        "hoodie.parquet.compression.codec",
        "hoodie.parquet.max.file.size",
    ]


def test_a_single_reason_is_raised_as_its_own_error() -> None:
    with pytest.raises(UnsupportedFeature, match="lzo"):
        resolve_options({"hoodie.parquet.compression.codec": "lzo"})


@pytest.mark.parametrize("mode", ["Append", "APPEND", "append "])
def test_save_modes_are_taken_in_any_case(mode: str) -> None:
    uri = f"memory://save-modes/{mode.strip()}"
    assert lakebed.write(ROWS, uri, JOB, mode=mode) is not None
    assert lakebed.write(ROWS, uri, JOB, mode="Ignore") is None
    for error in ("error", "ErrorIfExists", "default"):
        with pytest.raises(lakebed.TableExists):
            lakebed.write(ROWS, uri, JOB, mode=error)
    assert lakebed.write(ROWS, uri, JOB, mode="Overwrite") is not None
    with pytest.raises(InvalidOption, match="there is no save mode 'replace'"):
        lakebed.write(ROWS, uri, JOB, mode="replace")


def test_classes_are_taken_by_their_names() -> None:
    named = {
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
        "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
        "hoodie.cleaner.policy": "org.apache.hudi.KEEP_LATEST_COMMITS",
    }
    table = resolve_options(named).table
    assert (table.key_generator, table.payload) == ("COMPLEX", named["hoodie.datasource.write.payload.class"])
