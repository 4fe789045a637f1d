"""The HFiles of the golden tables' metadata tables, as real Hudi wrote them: base files and the blocks of log files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from lakebed.format.hfile.reader import open_hfile
from lakebed.format.log_file import BlockType, read_blocks
from lakebed.format.sources import BytesSource
from support.golden_tables import GoldenTable, golden


@dataclass(frozen=True)
class HFile:
    """One HFile: the metadata partition it is in, the schema of its values, its entries."""

    name: str
    partition: str
    schema: str
    keys: pa.StringArray
    values: pa.BinaryArray


@cache
def hfiles(table_name: str) -> tuple[HFile, ...]:
    return tuple(_read(golden(table_name)))


def _read(table: GoldenTable) -> Iterator[HFile]:
    root = ".hoodie/metadata/"
    for name, data in table.files().items():
        if not name.startswith(root) or name.startswith(root + ".hoodie/"):
            continue
        partition = name.removeprefix(root).partition("/")[0]
        if name.endswith(".hfile"):
            yield _entries(name, partition, data)
        elif ".log." in name:
            for block in read_blocks(data, name):
                if block.type is BlockType.HFILE_DATA:
                    yield _entries(name, partition, block.content)


def _entries(name: str, partition: str, data: bytes) -> HFile:
    reader = open_hfile(BytesSource(data))
    entries = reader.read()
    return HFile(name, partition, reader.schema_json, entries.keys.cast(pa.string()), entries.values)
