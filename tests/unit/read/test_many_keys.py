"""Lookups and upserts of more keys than are searched one by one (`slices/key_rows.py`), where keys of the request sort
before, between and after those of a file."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.row_groups.pages import PageReader
from lakebed.slices import key_rows

STORED = 3_000
TYPES = ("cow", "mor")


def _rows(numbers: range) -> pa.Table:
    return pa.table({"id": [f"k{n:05d}" for n in numbers], "v": pa.array(numbers, pa.int64())})


def _two_files(uri: str, type_: str, index: str) -> lakebed.Table:
    """Files whose keys interleave: each of them has keys that sort before the first key of the other one."""
    table = lakebed.create(
        uri, _rows(range(1)), key="id", type=type_, index=index, buckets=2 if index == "bucket" else None
    )
    once = {"hoodie.parquet.small.file.limit": "0"}
    table.insert(_rows(range(STORED // 2, STORED)), options=once)
    table.insert(_rows(range(STORED // 2)), options=once)
    return table


@pytest.mark.parametrize("asked", [key_rows._MAX_KEYS - 2, key_rows._MAX_KEYS - 1, STORED])
@pytest.mark.parametrize("index", ["simple", "global_simple", "bucket"])
@pytest.mark.parametrize("type_", TYPES)
def test_every_stored_key_is_found(type_: str, index: str, asked: int) -> None:
    table = _two_files(f"memory://many-keys-{type_}-{index}-{asked}", type_, index)
    keys = [f"k{n:05d}" for n in range(STORED - asked, STORED)] + ["a", "z"]
    assert sorted(table.get(keys).column("v").to_pylist()) == list(range(STORED - asked, STORED))
    assert table.exists(keys).to_pylist() == [True] * asked + [False] * 2
    assert sorted(table.locate(keys).column("key").to_pylist()) == keys[:-2]


@pytest.mark.parametrize("wanted", ["bucket_groups", "global_bloom"])
def test_known_keys_are_updated_after_the_index_changed(wanted: str) -> None:
    table = _two_files(f"memory://many-keys-{wanted}", "mor", "bucket" if wanted == "bucket_groups" else "simple")
    table.upsert(_rows(range(STORED // 2, STORED // 2 + 10)))  # logs, so that a file's key range says nothing
    table.indexes.use(wanted, buckets=2 if wanted == "bucket_groups" else None)
    result = table.upsert(_rows(range(500, STORED + 500)))
    assert (result.updated, result.inserted) == (STORED - 500, 500)
    assert table.scan().count() == STORED + 500


@pytest.mark.parametrize("type_", TYPES)
def test_keys_that_a_large_row_group_lacks_are_new_ones(type_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rows, "_LARGE_ROW_GROUP", 0)
    table = lakebed.create(
        f"memory://large-row-group-{type_}",
        _rows(range(1)),
        key="id",
        type=type_,
        index="bucket",
        buckets=1,
        indexes=["record_index"],
    )
    table.insert(_rows(range(0, 100, 2)))
    table.upsert(_rows(range(41, 42)))
    assert sorted(table.get(["k00041", "k00042", "k00043"]).column("v").to_pylist()) == [41, 42]
    assert table.count() == 51
    assert lakebed.open(table.uri).indexes.verify()


@pytest.mark.parametrize("most_pages", [0, 2], ids=["as a whole", "by pages"])
@pytest.mark.parametrize(
    ("fields", "kind"),
    [("id", pa.string()), ("id", pa.int64()), (["id", "v"], pa.string())],
    ids=["text", "number", "two"],
)
def test_rows_of_a_few_and_of_most_pages_are_the_same(
    fields: str | list[str], kind: pa.DataType, most_pages: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the key's text is a column of its own that one is read for the record key as well."""
    monkeypatch.setattr(key_rows, "_MAX_PAGES", most_pages)
    count = 20_000
    numbers = pa.array(range(count), pa.int64())
    texts = pa.array([str(n) for n in range(count)])
    rows = pa.table({"v": numbers, "w": texts, "id": texts if kind == pa.string() else numbers})
    table = lakebed.create(
        f"memory://most-pages-{'-'.join(fields)}-{kind}-{most_pages}",
        rows.schema,
        key=fields,
        index="bucket",
        buckets=1,
    )
    table.insert(rows)
    for step in (5, 4_999):
        wanted = range(3, count, step)
        ids = [n if kind == pa.int64() else str(n) for n in wanted]
        found = table.get(ids if isinstance(fields, str) else list(zip(ids, wanted, strict=True))).sort_by("v")
        assert found.column_names == ["v", "w", "id"]
        assert found.to_pydict() == {"v": list(wanted), "w": [str(n) for n in wanted], "id": ids}
        shown = table.get(
            ids if isinstance(fields, str) else list(zip(ids, wanted, strict=True)), ["_hoodie_record_key"]
        )
        expected = [str(n) if isinstance(fields, str) else f"id:{n},v:{n}" for n in wanted]
        assert sorted(shown["_hoodie_record_key"].to_pylist()) == sorted(expected)


@pytest.mark.parametrize("more", [0, 1])
def test_values_are_picked_from_pages_of_many_rows(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """Where most pages hold a row: of fewer rows the row group is read, which is a request less."""
    count = 40_000  # two pages
    monkeypatch.setattr(key_rows, "_PICKED_ROWS", count + more)
    picked: list[str] = []
    plain = PageReader.plain
    monkeypatch.setattr(PageReader, "plain", lambda *given: picked.extend(given[2]) or plain(*given))
    lengths = pa.array([str(n) for n in range(count)])
    rows = pa.table({"id": [f"{n:06d}" for n in range(count)], "v": range(count), "t": lengths})
    table = lakebed.create(f"memory://picked-{more}", rows.schema, key="id", index="bucket", buckets=1)
    table.insert(rows)
    for _ in range(3):
        found = table.get(rows["id"][::50]).sort_by("v")
        assert found.equals(rows.take(list(range(0, count, 50))))
    assert bool(picked) == (more == 0)
