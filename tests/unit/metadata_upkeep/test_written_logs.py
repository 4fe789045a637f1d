"""The blocks of small log files of the metadata table, which the process that wrote them does not read again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.log_file import WRITTEN_LOGS, BlockHead, BlockType, scan_blocks
from lakebed.format.sources import MAX_REMEMBERED_FILE, FileSource, forget_written
from lakebed.metadata import slices
from lakebed.metadata.slices import HFILES, LOGS
from lakebed.metadata_records.group_files import FileGroup, write_log
from lakebed.metadata_records.layout import METADATA_FOLDER, HFileForm
from lakebed.storage.folder import FolderStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from support.request_rounds import request_rounds

if TYPE_CHECKING:
    from lakebed.metadata_records.group_files import WrittenLog
    from lakebed.storage.base import Storage

INSTANT = "20261130120000000"


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    for cache in (HFILES, LOGS, WRITTEN_LOGS):
        cache.clear()


def log_of(storage: Storage, values: list[bytes], deleted: list[str], version: int = 9) -> WrittenLog:
    """A log file with a record for each value, under keys that do not ascend."""
    group = FileGroup(version, "column_stats", "col-stats-0000-0", HFileForm(), "")
    keys = [f"key {len(values) - number:06d} \N{SNOWMAN}" for number in range(len(values))]
    records = pa.array(keys, pa.string()), pa.array(values, pa.binary())
    return write_log(storage, group, INSTANT, *records, pa.array(deleted, pa.string()))


def source_of(storage: Storage, log: WrittenLog) -> FileSource:
    return FileSource(FolderStorage(storage, METADATA_FOLDER), f"{log.group.partition}/{log.name}", log.size)


def fields_of(head: BlockHead) -> tuple[object, ...]:
    return head.type, head.offset, head.end, head.content_offset, head.content_length, head.headers, head.content.key


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize(("values", "deleted"), [([b"1"], []), ([b"1", b"", b"3"], ["gone", "too"]), ([], ["gone"])])
def test_remembered_blocks_are_those_that_the_file_has(values: list[bytes], deleted: list[str], version: int) -> None:
    storage = CountingStorage(MemoryStorage(f"written-{uuid.uuid4().hex}"))
    log = log_of(storage, values, deleted, version)
    source = source_of(storage, log)
    written = WRITTEN_LOGS.get(source.key)
    assert written is not None
    storage.reset()
    remembered = slices.heads_of_written(written.content, source)
    records = [HFILES.of(h.content, source.size).read() for h in remembered if h.type is BlockType.HFILE_DATA]
    schemas = [HFILES.of(h.content, source.size).schema_json for h in remembered if h.type is BlockType.HFILE_DATA]
    assert not storage.opened
    stored = scan_blocks(source)
    assert [fields_of(head) for head in remembered] == [fields_of(head) for head in stored]
    assert [bytes(head.read()) for head in remembered] == [bytes(head.read()) for head in stored]
    hfiles = [open_hfile(head.content) for head in stored if head.type is BlockType.HFILE_DATA]
    assert schemas == [hfile.schema_json for hfile in hfiles]
    assert [(part.keys.to_pylist(), part.values.to_pylist()) for part in records] == [
        (part.keys.to_pylist(), part.values.to_pylist()) for part in (hfile.read() for hfile in hfiles)
    ]
    assert [(part.keys.type, part.values.type) for part in records] == [(pa.binary(), pa.binary())] * len(records)


def test_a_lookup_in_a_remembered_file_reads_the_file() -> None:
    storage = MemoryStorage(f"written-{uuid.uuid4().hex}")
    log = log_of(storage, [b"1", b"2", b"3"], [])
    source = source_of(storage, log)
    written = WRITTEN_LOGS.get(source.key)
    assert written is not None
    (head,) = slices.heads_of_written(written.content, source)
    hfile = HFILES.of(head.content, source.size)
    matches = hfile.lookup(pa.array(["key 000002 \N{SNOWMAN}", "nobody"]))
    assert (matches.query.to_pylist(), matches.entries.values.to_pylist()) == ([0], [b"2"])
    assert hfile.prefix(pa.array(["key 00000"])).entries.values.to_pylist() == [b"3", b"2", b"1"]


def test_files_up_to_the_limit_are_remembered() -> None:
    storage = MemoryStorage(f"written-{uuid.uuid4().hex}")
    small = log_of(storage, [uuid.uuid4().bytes * 3_000], [])
    large = log_of(storage, [b"".join(uuid.uuid4().bytes for _ in range(MAX_REMEMBERED_FILE // 16 + 1))], [])
    assert small.size <= MAX_REMEMBERED_FILE < large.size
    assert WRITTEN_LOGS.get(source_of(storage, small).key) is not None
    assert WRITTEN_LOGS.get(source_of(storage, large).key) is None


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": [f"k{n}" for n in numbers], "n": list(numbers), "city": ["a"] * len(numbers)})


@pytest.mark.parametrize("forgets", [False, True])
def test_a_process_does_not_decode_its_own_logs_of_the_metadata_table(forgets: bool) -> None:
    host = f"written-{uuid.uuid4().hex}"
    uri = f"memory://{host}/t"
    lakebed.create(uri, rows(1), key="id", partition_by="city", type="mor", index="bucket")
    with request_rounds() as clock:
        table = lakebed.open(uri)
        for number in range(3):
            table.upsert(rows(1, 2, number))
        if forgets:
            forget()
            forget_written()
        clock.requests.clear()
        table.maintenance.compact()
    logs = f"{METADATA_FOLDER}/column_stats/.col-stats"
    read = {r.path for r in clock.requests if r.verb in ("read", "read_ranges") and r.path.startswith(logs)}
    creating = {path for path in read if path.endswith("_0-0-0")}
    assert bool(read - creating) == forgets, sorted(read)
    result = table.scan(columns=["id", "n"]).to_arrow().sort_by("id").to_pylist()
    assert result == [{"id": "k0", "n": 0}, {"id": "k1", "n": 1}, {"id": "k2", "n": 2}]
    MemoryStorage.drop(host)
