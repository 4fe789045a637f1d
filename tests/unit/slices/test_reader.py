"""Reading file slices: rows of base files, rows of some keys, and the one place that refuses log files."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.model import RECORD_KEY, BaseFile, FileSlice, LogFile
from lakebed.properties.table_config import TableConfig
from lakebed.slices.key_rows import rows_of_keys
from lakebed.slices.reader import SliceReader, base_files_only, readable_slices
from lakebed.storage.local import LocalStorage

COW = TableConfig({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE"})
MOR = TableConfig({"hoodie.table.name": "t", "hoodie.table.type": "MERGE_ON_READ"})
LOG = LogFile("p", "f", "2", 1, "0-0-0", ".f_2.log.1_0-0-0", 100)
LOGS_ONLY = FileSlice("p", "g", "2", None, (LOG,))


@pytest.fixture
def storage(tmp_path: object) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def stored(storage: LocalStorage, keys: Sequence[str], *, row_group_size: int = 4) -> FileSlice:
    """A file slice with a base file of these keys."""
    table = pa.table({RECORD_KEY: list(keys), "n": pa.array(range(len(keys)), pa.int64()), "w": ["x"] * len(keys)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=row_group_size)
    data = sink.getvalue().to_pybytes()
    base = BaseFile("p", "f", "0-0-0", "1", "f_0-0-0_1.parquet", len(data))
    storage.write(base.path, data)
    return FileSlice("p", "f", "1", base)


def with_log(file_slice: FileSlice) -> FileSlice:
    return FileSlice(file_slice.partition, file_slice.file_id, "1", file_slice.base_file, (LOG,))


def test_a_slice_without_log_files_is_its_base_file(storage: LocalStorage) -> None:
    file_slice = stored(storage, [f"k{n}" for n in range(10)])
    for config in (COW, MOR):
        reader = SliceReader(storage, config)
        rows = pa.Table.from_batches(reader.read(file_slice, ["n", "absent"]))
        assert rows.to_pydict() == {"n": list(range(10))}
        assert [b.num_rows for b in reader.read(file_slice, batch_rows=3)] == [3, 1, 3, 1, 2]
        assert reader.count(file_slice) == 10
        assert reader.base_file(file_slice) == file_slice.base_file


def test_a_slice_with_log_files_is_more_than_its_base_file(storage: LocalStorage) -> None:
    file_slice = with_log(stored(storage, ["a"]))
    reader = SliceReader(storage, MOR)
    assert [s.label for s in (file_slice, LOGS_ONLY)] == ["p/f_0-0-0_1.parquet", "g"]
    for one in (file_slice, LOGS_ONLY):
        with pytest.raises(UnsupportedFeature, match="its base file alone is not its rows"):
            reader.base_file(one)


def test_a_missing_log_file_is_damage(storage: LocalStorage) -> None:
    reader = SliceReader(storage, MOR)
    file_slice = with_log(stored(storage, ["a"]))
    for read in (
        lambda: list(reader.read(file_slice, [RECORD_KEY])),
        lambda: reader.count(file_slice),
        lambda: rows_of_keys(reader, file_slice, pa.array(["a"]), ["n"]),
    ):
        with pytest.raises(CorruptFile, match="is missing, and the table lists it"):
            read()


def test_a_read_optimized_query_leaves_log_files_away(storage: LocalStorage) -> None:
    plain = stored(storage, ["a"])
    assert readable_slices(MOR, [with_log(plain), LOGS_ONLY], "read_optimized") == [plain]
    assert base_files_only([with_log(plain), LOGS_ONLY, plain]) == [plain, plain]
    assert readable_slices(MOR, [plain]) == [plain]


def test_log_files_of_a_copy_on_write_table_say_nothing(storage: LocalStorage) -> None:
    """Only a foreign program can have put them there."""
    plain = stored(storage, ["a"])
    reader = SliceReader(storage, COW)
    assert readable_slices(COW, [with_log(plain), LOGS_ONLY]) == [plain]
    assert reader.count(with_log(plain)) == 1
    assert (list(reader.read(LOGS_ONLY)), reader.count(LOGS_ONLY)) == ([], 0)


def test_a_reader_is_sent_to_other_processes(storage: LocalStorage) -> None:
    file_slice = stored(storage, ["a", "b"])
    reader, sent = pickle.loads(pickle.dumps((SliceReader(storage, COW), file_slice)))
    assert pa.Table.from_batches(reader.read(sent, ["n"])).to_pydict() == {"n": [0, 1]}


@pytest.mark.parametrize("large", [False, True])
def test_rows_of_some_keys(storage: LocalStorage, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr("lakebed.slices.key_rows._LARGE_ROW_GROUP", 0)
    file_slice = stored(storage, [f"k{n:02d}" for n in range(20)] + ["k03"])
    reader = SliceReader(storage, COW)
    for _ in range(2):  # with and without key positions that are held
        found = rows_of_keys(reader, file_slice, pa.array(["k03", "k17", "no"]), ["n"])
        rows = pa.Table.from_batches([b for b in found if b.num_rows])
        assert rows.select([RECORD_KEY, "n"]).to_pydict() == {RECORD_KEY: ["k03", "k17", "k03"], "n": [3, 17, 20]}
    assert rows_of_keys(reader, file_slice, pa.array(["z"]), ["n"]) == []
