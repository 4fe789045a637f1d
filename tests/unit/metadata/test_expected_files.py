"""What completed instants wrote of the metadata table, as a process holds it from one look to the next."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa

import lakebed
from lakebed.metadata.expected_files import ExpectedFiles
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.timeline import load_timeline

FOLDER = ".hoodie/metadata"


def test_a_timeline_that_lists_no_files_is_looked_at_again_with_one_more_instant() -> None:
    name = f"expected-{uuid.uuid4().hex}"
    table = lakebed.create(f"memory://{name}/t", {"id": [0], "v": ["a"]}, key="id", index="record")
    for n in range(3):
        table.upsert(pa.table({"id": [n], "v": ["a"]}))
    storage = open_storage(f"{table.uri}/{FOLDER}")
    whole = load_timeline(storage, load_table_config(storage))
    bare = replace(whole, files={})  # as a task has it
    ExpectedFiles.of(replace(bare, commits=whole.commits[:-1]))
    expected = ExpectedFiles.of(bare)
    assert {time for time in expected.instants if time[0] == "2"} == {i.time for i in table.timeline}
    assert ExpectedFiles.of(whole) == expected
    MemoryStorage.drop(name)
