"""The form in which what a metadata partition holds is compared with what the data says that it should.

A row has the `key` of its record, the `entry` within it (a file of a partition path; else empty), a `label` for people
and the content as `text`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

COMPARED = pa.schema([(name, pa.string()) for name in ("key", "entry", "label", "text")])
DIFFERENCES = pa.schema(
    [(name, pa.string()) for name in ("index", "problem", "what", "expected", "found", "key", "entry")]
)


def comparable(keys: Sequence[str], entries: Sequence[str], labels: Sequence[str], texts: Sequence[str]) -> pa.Table:
    """Rows that can be compared."""
    columns = [pa.array(values, pa.string()) for values in (keys, entries, labels, texts)]
    return pa.Table.from_arrays(columns, schema=COMPARED)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of several tables in one."""
    return pa.concat_tables([COMPARED.empty_table(), *tables]).combine_chunks()
