"""The floor of a rewrite: pyarrow reads and writes the table's files on one thread, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from serve import Commands, serve

_DELTA = "DELTA_LENGTH_BYTE_ARRAY"


def rewrite(files: list[str], out: str) -> int:
    """Every file, batch by batch, to `out`, with the encodings and statistics it has. Gives the rows."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return sum(_rewrite(Path(file), folder / Path(file).name) for file in files)


def _rewrite(source: Path, target: Path) -> int:
    columns = _columns(source)
    dictionaries = [c.path_in_schema for c in columns if c.has_dictionary_page]
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": dictionaries,
        "column_encoding": {c.path_in_schema: _DELTA for c in columns if _DELTA in c.encodings} or None,
        "write_statistics": [c.path_in_schema for c in columns if c.is_stats_set],
        "store_schema": False,
    }
    texts = [c.path_in_schema for c in columns if c.has_dictionary_page and c.physical_type == "BYTE_ARRAY"]
    with pq.ParquetFile(source, read_dictionary=texts) as file:
        schema = file.schema_arrow.remove_metadata()
        with pq.ParquetWriter(target, schema, **options) as writer:
            for group in range(file.num_row_groups):
                batches = file.iter_batches(65_536, row_groups=[group], use_threads=False)
                table = pa.Table.from_batches(batches, file.schema_arrow).replace_schema_metadata(None)
                writer.write_table(table.unify_dictionaries(), row_group_size=table.num_rows)
        return file.metadata.num_rows


def _columns(file: Path) -> list[Any]:
    first = pq.read_metadata(file).row_group(0)
    return [first.column(i) for i in range(first.num_columns)]


def _start() -> Commands:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    return {"rewrite": rewrite}


if __name__ == "__main__":
    serve(_start)
