"""Rows that people look at: texts in place of vectors, blobs and variants."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import LakebedError
from lakebed.format.variants import json_texts
from lakebed.schema.logical_types import is_blob_struct, is_variant, is_vector
from lakebed.wording import blob_text, vector_text

Kind = Literal["VECTOR", "BLOB", "VARIANT"]
KINDS: tuple[Kind, ...] = ("VECTOR", "BLOB", "VARIANT")


def with_texts(rows: pa.Table, kinds: Collection[Kind] = KINDS) -> pa.Table:
    """Rows with a text in place of each value of these kinds: the dimension and norm of a vector, the size or the file
    of a blob, the JSON of a variant. Variants stay as they are without DuckDB, and where it cannot read them."""
    for at, field in enumerate(rows.schema):
        kind = kind_of(field.type)
        if kind not in kinds:
            continue
        if kind == "VARIANT":
            with suppress(LakebedError):
                rows = rows.set_column(at, field.name, json_texts(rows.column(at)))
            continue
        text_of: Any = vector_text if kind == "VECTOR" else blob_text
        texts = [None if value is None else text_of(value) for value in rows.column(at).to_pylist()]
        rows = rows.set_column(at, field.name, pa.array(texts, pa.string()))
    return rows


def kind_of(kind: pa.DataType) -> Kind | None:
    """Which of the logical types a type of result columns is. Results of queries have no metadata, so that a struct
    with the fields of a blob or a variant is taken for one."""
    if is_vector(kind):
        return "VECTOR"
    if is_variant(kind) and all(pt.is_binary(part.type) for part in kind):
        return "VARIANT"
    return "BLOB" if is_blob_struct(kind) and pt.is_struct(kind.field("reference").type) else None
