"""The encoding of a column is chosen from the values that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakebed.format.base_file import read_base_file
from lakebed.format.parquet_encodings import choose_encodings, coded_texts, encodings_of
from lakebed.storage import open_storage

# Four slices are looked at, of which this is one.
SLICE = 4_096
ROWS = 4 * SLICE


def test_a_dictionary_is_chosen_by_all_values_and_not_by_those_of_the_first_slice() -> None:
    columns = {
        "unique": list(range(ROWS)),
        "few": [n % 10 for n in range(ROWS)],
        # few in the first slice, many in all
        "few_at_first": [0 if n < SLICE else n for n in range(ROWS)],
        # many in the first slice, and yet few for the number of all
        "many_at_first": [n % SLICE if n < 2_400 else 0 for n in range(ROWS)],
        # as many as a slice may have, and one more
        "bound": [min(n, 2_456) for n in range(ROWS)],
        "beyond": [min(n, 2_457) for n in range(ROWS)],
    }
    rows = pa.table(columns)
    chosen = choose_encodings(rows)
    most = 0.15 * ROWS
    assert [pc.count_distinct(rows["bound"]).as_py(), pc.count_distinct(rows["beyond"]).as_py()] == [2_457, 2_458]
    assert set(chosen.dictionary) == {n for n in columns if pc.count_distinct(rows[n]).as_py() <= most}
    assert set(chosen.dictionary) == {"few", "many_at_first", "bound"}


def noise(rows: int, width: int, zeros: int) -> pa.Array:
    """Random bytes, of which the last are zeros."""
    dice = np.random.default_rng(3)
    data = dice.integers(1, 256, (rows, width), dtype=np.uint8)
    data[:, width - zeros :] = 0
    offsets = np.arange(0, width * (rows + 1), width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())])


def every_kind(rows: int) -> pa.Table:
    dice = np.random.default_rng(2)
    high, low = (dice.integers(0, 1 << 62, rows) for _ in range(2))
    return pa.table(
        {
            "_hoodie_commit_seqno": [f"20260101000000000_0_{n}" for n in range(rows)],
            "key": [f"{a:018x}{b:018x}" for a, b in zip(high.tolist(), low.tolist(), strict=True)],
            "rider": [f"rider-{n:07d}" for n in dice.integers(0, 10**6, rows).tolist()],
            "few": dice.integers(0, 64, rows),
            "moment": 1_700_000_000_000 + dice.integers(0, 10**9, rows),
            "any": dice.integers(-(1 << 63), 1 << 63, rows),
            "price": np.round(dice.gamma(2.0, 9.0, rows), 2),
            "noise": noise(rows, 100, 7),
            "less_noise": noise(rows, 100, 13),
        }
    )


def test_each_column_gets_the_encoding_and_the_codec_that_fit_its_values() -> None:
    chosen = choose_encodings(every_kind(ROWS), text_codec="lz4")
    assert chosen.dictionary == ("few",)
    assert chosen.encoding == {
        "_hoodie_commit_seqno": "DELTA_BYTE_ARRAY",
        "key": "DELTA_LENGTH_BYTE_ARRAY",
        "moment": "DELTA_BINARY_PACKED",
        "noise": "DELTA_LENGTH_BYTE_ARRAY",
        "less_noise": "DELTA_LENGTH_BYTE_ARRAY",
    }
    assert chosen.codec == {
        "_hoodie_commit_seqno": chosen.codec["_hoodie_commit_seqno"],
        "key": "zstd",
        "rider": "lz4",
        "few": "none",
        "moment": "none",
        "any": "none",
        "price": chosen.codec["price"],
        "noise": "none",
        "less_noise": "zstd",
    }
    with_zstd = choose_encodings(every_kind(ROWS), text_codec="zstd").codec
    assert {name for name, codec in with_zstd.items() if codec != chosen.codec[name]} <= {
        "rider",
        "_hoodie_commit_seqno",
    }
    assert "lz4" not in with_zstd.values()


@pytest.mark.parametrize(("rows", "is_measured"), [(ROWS - 1, False), (ROWS, True)])
def test_codecs_and_the_encoding_of_numbers_need_enough_rows(rows: int, is_measured: bool) -> None:
    chosen = choose_encodings(every_kind(rows), text_codec="lz4")
    assert bool(chosen.codec) is is_measured
    assert ("moment" in chosen.encoding) is is_measured
    assert chosen.encoding["_hoodie_commit_seqno"] == "DELTA_BYTE_ARRAY"
    assert choose_encodings(every_kind(rows)).codec == {}


def test_a_file_keeps_the_forms_of_the_file_that_it_replaces(tmp_path: Path) -> None:
    rows = every_kind(ROWS)
    chosen = choose_encodings(rows, text_codec="lz4")
    plain = {path: how for path, how in chosen.encoding.items() if path not in chosen.dictionary}
    for codecs in (chosen.codec, "zstd"):
        path = tmp_path / "rows.parquet"
        options: dict[str, Any] = {"compression": codecs, "column_encoding": plain}
        pq.write_table(rows, path, use_dictionary=list(chosen.dictionary), store_schema=False, **options)
        stored = encodings_of(pq.read_metadata(path))
        assert {name: form.codec for name, form in stored.items()} == (
            chosen.codec if codecs is chosen.codec else dict.fromkeys(rows.column_names, "")
        )
        again = choose_encodings(rows, stored, text_codec="lz4")
        assert again == chosen
        assert choose_encodings(rows.slice(0, 10), stored, text_codec="lz4").encoding == chosen.encoding


def texts_of(rows: int, distinct: int) -> pa.Array:
    return pa.array([None if n % 7 == 3 else f"text {n % distinct}" for n in range(rows)])


def read_back(folder: Path, rows: pa.Table, row_group_size: int, **options: Any) -> tuple[list[str], pa.Table]:
    """The columns that are read by way of their dictionaries, and all rows as they are read."""
    path = folder / "rows.parquet"
    pq.write_table(rows, path, row_group_size=row_group_size, **{"store_schema": False, **options})
    metadata = pq.read_metadata(path)
    batches = list(read_base_file(open_storage(str(folder)), path.name))
    return coded_texts(metadata), pa.Table.from_batches(batches)


@pytest.mark.parametrize(("rows", "coded"), [(4_095, []), (4_096, ["few"])])
def test_texts_of_few_values_are_read_by_their_dictionary_from_that_many_rows_on(
    tmp_path: Path, rows: int, coded: list[str]
) -> None:
    table = pa.table({"n": pa.array(range(rows)), "few": texts_of(rows, 5)})
    assert read_back(tmp_path, table, rows) == (coded, table)


def test_only_texts_that_are_smaller_than_their_lengths_are_read_by_their_dictionary(tmp_path: Path) -> None:
    rows = 30_000
    table = pa.table(
        {
            "few": texts_of(rows, 300),
            "many": texts_of(rows, 20_000),
            "plain": texts_of(rows, 5),
            "number": pa.array([n % 3 for n in range(rows)]),
            "bytes": pa.array([b"%d" % (n % 3) for n in range(rows)]),
            "inside": pa.array([{"text": f"{n % 3}"} for n in range(rows)]),
            "list": pa.array([[f"{n % 3}"] for n in range(rows)]),
            "inside.text": texts_of(rows, 4),
            "null": pa.nulls(rows, pa.string()),
        }
    )
    dictionaries = ["few", "many", "number", "bytes", "inside.text", "list.list.element"]
    coded, read = read_back(tmp_path, table, 10_000, use_dictionary=dictionaries)
    assert (coded, read) == (["few"], table)


def test_texts_whose_dictionary_became_full_are_read_as_they_are(tmp_path: Path) -> None:
    rows = 20_000
    few_at_first = pa.array([f"text {n if n > 19_000 else n % 3}" for n in range(rows)])
    table = pa.table({"mixed": few_at_first, "full": texts_of(rows, rows)})
    coded, read = read_back(tmp_path, table, rows, dictionary_pagesize_limit=1_024)
    assert (coded, read) == (["mixed"], table)


def test_texts_of_files_with_types_of_arrow_are_read_in_these(tmp_path: Path) -> None:
    rows = 5_000
    texts = texts_of(rows, 5)
    table = pa.table({"coded": texts.dictionary_encode(), "large": texts.cast(pa.large_string()), "text": texts})
    coded, read = read_back(tmp_path, table, rows, store_schema=True)
    assert (coded, read) == ([], table)
