"""Tables of Flink that record no index: a write never stores a second row of a key in another partition path."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.properties.file import table_checksum
from support.golden_tables import golden

NAME = "flinklike_v8_mor_state"
CHECKSUM = table_checksum("t")


def open_table(tmp_path: Path) -> lakebed.Table:
    return lakebed.open(str(golden(NAME).unpack(tmp_path)))


def rows(ids: list[int], city: str) -> pa.Table:
    columns = {"id": ids, "city": [city] * len(ids), "name": ["new"] * len(ids), "n": ids, "ts": [99] * len(ids)}
    return pa.table(columns).cast(
        pa.schema(
            [("id", pa.int32()), ("city", pa.string()), ("name", pa.string()), ("n", pa.int64()), ("ts", pa.int64())]
        )
    )


def cities_of(t: lakebed.Table, id: int) -> list[str]:
    return sorted(t.scan(where=f"id = {id}").to_arrow()["city"].to_pylist())


def test_a_row_whose_key_is_in_another_partition_path_is_refused_until_an_index_is_adopted(tmp_path: Path) -> None:
    t = open_table(tmp_path)
    before = t.scan().to_arrow().num_rows
    assert cities_of(t, 2) == ["c"]
    for city in ("a", "zz"):  # a partition path that exists, and a new one
        with pytest.raises(InvalidOption, match="second rows of these keys") as error:
            t.upsert(rows([2, 100], city))
        assert "adopt('global_simple')" in error.value.hint
        assert error.value.context == {"table": "t", "partition": city, "stored": "c"}
    assert t.scan().to_arrow().num_rows == before
    t.upsert(rows([2, 101], "c"))  # the same partition path, and a new key
    t.upsert(rows([102], "zz"))
    assert (cities_of(t, 2), cities_of(t, 101), cities_of(t, 102)) == (["c"], ["c"], ["zz"])
    with pytest.raises(InvalidOption, match="second rows of these keys"):
        t.upsert(rows([102], "c"))
    t.indexes.adopt("global_simple")
    lakebed.open(t.uri).upsert(rows([2], "a"))
    assert cities_of(lakebed.open(t.uri), 2) == ["a"]


def test_with_the_simple_index_adopted_a_key_may_be_in_every_partition_path(tmp_path: Path) -> None:
    t = open_table(tmp_path)
    t.indexes.adopt("simple")
    t = lakebed.open(t.uri)
    t.upsert(rows([2], "a"))
    assert cities_of(t, 2) == ["a", "c"]


def test_the_warning_names_the_default_of_flink(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        open_table(tmp_path).upsert(rows([2], "c"))
    assert "index.global.enabled=true" in caplog.text
    assert "adopt('global_simple')" in caplog.text


def test_file_ids_alone_show_that_flink_made_a_table(tmp_path: Path) -> None:
    t = open_table(tmp_path)
    properties = Path(t.uri) / ".hoodie" / "hoodie.properties"
    text = properties.read_text().replace("SIMPLE_AVRO", "SIMPLE").replace("default_database", "")
    text = text.replace("column_stats,files,partition_stats", "").replace("checksum=3086065631", f"checksum={CHECKSUM}")
    properties.write_text(text)
    shutil.rmtree(properties.parent / "metadata")
    with pytest.raises(InvalidOption, match="second rows of these keys"):
        lakebed.open(t.uri).upsert(rows([2], "a"))


def test_a_table_of_spark_without_a_recorded_index_is_simple(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    t = lakebed.open(str(golden("v9_cow_simple").unpack(tmp_path)))
    with caplog.at_level(logging.WARNING):
        t.delete(lakebed.KeyText(["no such key"]))
    assert "Flink" not in caplog.text
