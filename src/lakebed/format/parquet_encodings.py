"""The Parquet encoding and codec of each column of a base file, chosen from a sample of its first rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakebed.format.hashes import plain_strings, value_buffer
from lakebed.model import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH
from lakebed.schema.arrow import leaf_paths
from lakebed.schema.plain_arrow import is_list

_SAMPLE_SLICES = 4
_SLICE_ROWS = 4096
# A dictionary pays while the values repeat at least so often in the sample.
_MAX_DISTINCT_RATIO = 0.15
_ALWAYS_DICTIONARY = frozenset({COMMIT_TIME, PARTITION_PATH, FILE_NAME})
# Keys of one length with nothing in common (UUIDs, hashes) compress better, and twice as fast, without lengths between.
_MIN_RANDOM_LENGTH = 16
_MAX_SHARED_PREFIX = 0.25
DICTIONARY = "DICTIONARY"
RANDOM_TEXT_ENCODING = "DELTA_LENGTH_BYTE_ARRAY"
_NUMBER_ENCODING = "DELTA_BINARY_PACKED"
# Sequence numbers of a file share all but their last digits.
_PREFIX_ENCODING = "DELTA_BYTE_ARRAY"
_OTHER_ENCODINGS = (RANDOM_TEXT_ENCODING, _NUMBER_ENCODING, _PREFIX_ENCODING)
# Codecs are chosen by compressing a few slices of so many rows. A file that begins with fewer rows has one codec.
_MEASURED_ROWS = 16_384
_MEASURED_SLICE = 1024
# The level of zstd by which codecs are chosen.
_LEVEL = 1
# A codec must save such a share of the bytes that it compresses.
_MIN_SAVED = 0.1
# LZ4 is taken for texts of which it saves such a share of what zstd saves: it takes half the time to decompress.
_LZ4_SHARE = 0.7
# Texts are decoded by way of their dictionary where row groups have so many rows on average, and the column takes less
# than the lengths alone would take without a dictionary.
_CODED_ROWS = 4096
_LENGTH_BYTES = 4
# Types by which Arrow reads columns, whatever Parquet's are: other writers' files may have them.
ARROW_SCHEMA = b"ARROW:schema"
# Arrow does not read texts in these as dictionaries.
_NEVER_DICTIONARIES = frozenset({_PREFIX_ENCODING, RANDOM_TEXT_ENCODING})


class ColumnForm(NamedTuple):
    """How a column is stored: its encoding (`DICTIONARY` if it has one), and its codec in pyarrow's spelling (empty:
    it is still to be chosen)."""

    encoding: str
    codec: str = ""


@dataclass(frozen=True, slots=True)
class Encodings:
    """The Parquet column paths that get a dictionary, and the encodings of other columns by path; a column in neither
    is PLAIN. `codec` has the codecs that were chosen, by path."""

    dictionary: tuple[str, ...] = ()
    encoding: dict[str, str] = field(default_factory=dict)
    codec: dict[str, str] = field(default_factory=dict)


def encodings_of(metadata: Any) -> dict[str, ColumnForm]:
    """The encodings and codecs of a file by column path, for the file that replaces it. A file with one codec for all
    columns does not show which ones fit them.

    Empty for other writers' files, which have dictionaries everywhere, and for small ones, whose rows are too few to
    decide."""
    if metadata.num_row_groups == 0 or metadata.num_rows < _SAMPLE_SLICES * _SLICE_ROWS:
        return {}
    if not metadata.created_by.startswith("parquet-cpp"):
        return {}
    group = metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    has_several = len({c.compression for c in columns}) > 1
    return {c.path_in_schema: ColumnForm(_encoding_of(c), _codec_of(c) if has_several else "") for c in columns}


def _codec_of(chunk: Any) -> str:
    """The codec of a column chunk, in the spelling of `ParquetSettings.codec`."""
    name = str(chunk.compression)
    return "none" if name == "UNCOMPRESSED" else name.lower()


def as_dictionaries(metadata: Any, names: Collection[str]) -> list[str]:
    """The columns (Parquet paths) that hold texts or bytes which Arrow can read as dictionaries, by Parquet's
    metadata of the file."""
    if not names:
        return []
    columns = [metadata.schema.column(at) for at in range(len(metadata.schema))]
    at = {n: c.path for n, c in enumerate(columns) if c.path in names and c.physical_type == "BYTE_ARRAY"}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        path
        for n, path in at.items()
        if _NEVER_DICTIONARIES.isdisjoint([encoding for g in groups for encoding in g.column(n).encodings])
    ]


def coded_texts(metadata: Any, names: Collection[str] | None = None) -> list[str]:
    """The text columns (of `names`, None: of all) with small dictionaries, by Parquet's metadata of the file: reading
    them as dictionaries and decoding them afterwards takes half the time."""
    if ARROW_SCHEMA in (metadata.metadata or {}) or metadata.num_rows < _CODED_ROWS * metadata.num_row_groups:
        return []
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = (metadata.schema.column(at) for at in range(len(metadata.schema)))
    texts = {n: c.path for n, c in enumerate(columns) if (names is None or c.path in names) and _is_text(c)}
    return [path for n, path in texts.items() if all(_is_coded(g.column(n)) for g in groups)]


def _is_text(column: Any) -> bool:
    """Whether Parquet's schema has the column as a top-level text column (a path with dots may be one)."""
    return column.logical_type.type == "STRING" and "." not in column.path


def _is_coded(chunk: Any) -> bool:
    is_small = chunk.has_dictionary_page and chunk.total_uncompressed_size < _LENGTH_BYTES * chunk.num_values
    return is_small and _NEVER_DICTIONARIES.isdisjoint(chunk.encodings)


def _encoding_of(column: Any) -> str:
    if column.has_dictionary_page:
        return DICTIONARY
    return next((encoding for encoding in _OTHER_ENCODINGS if encoding in column.encodings), "PLAIN")


def choose_encodings(
    rows: pa.Table, existing: Mapping[str, ColumnForm] | None = None, *, text_codec: str | None = None
) -> Encodings:
    """The encodings for a file that starts with these rows; a column in `existing` retains its form and is not
    inspected. With `text_codec`, that of texts ("lz4" or "zstd"), each column gets its codec as well, if the rows are
    enough to measure it."""
    existing = existing or {}
    dictionary = [path for path, form in existing.items() if form.encoding == DICTIONARY]
    encoding = {path: form.encoding for path, form in existing.items() if form.encoding in _OTHER_ENCODINGS}
    codec = {path: form.codec for path, form in existing.items() if form.codec} if text_codec else {}
    is_measured = rows.num_rows >= _MEASURED_ROWS
    settled = {path.split(".")[0] for path, form in existing.items() if form.codec or not (is_measured and text_codec)}
    sample = _sample(rows.select([n for n in rows.column_names if n not in settled]))
    for name in sample.column_names:
        for path, leaf in leaves(name, sample.column(name).combine_chunks()):
            form = existing.get(path) or ColumnForm(_fitting_encoding(path, leaf, is_measured=is_measured))
            if form.encoding == DICTIONARY and path not in existing:
                dictionary.append(path)
            elif form.encoding in _OTHER_ENCODINGS:
                encoding[path] = form.encoding
            if is_measured and text_codec:
                codec[path] = _fitting_codec(leaf, form.encoding, text_codec)
    return Encodings(tuple(dictionary), encoding, codec)


def shared_forms(rows: pa.Table) -> dict[str, ColumnForm]:
    """The forms of the columns of many small files, by these rows of all of them. Their codecs are still to be
    chosen."""
    encodings = choose_encodings(rows)
    forms = {
        path: ColumnForm(encodings.encoding.get(path, "PLAIN"))
        for name in rows.column_names
        for path, _ in leaf_paths([rows.schema.field(name)])
    }
    return forms | dict.fromkeys(encodings.dictionary, ColumnForm(DICTIONARY))


def _fitting_encoding(path: str, leaf: pa.Array, *, is_measured: bool) -> str:
    """The encoding of a column by the values of a sample; whole numbers are encoded if that can be measured."""
    if path in _ALWAYS_DICTIONARY or _repeats(leaf):
        return DICTIONARY
    if path == COMMIT_SEQNO:
        return _PREFIX_ENCODING
    if _is_random_text(leaf):
        return RANDOM_TEXT_ENCODING
    if is_measured and _is_integral(leaf.type) and _smallest(leaf, _NUMBER_ENCODING) < _smallest(leaf, "PLAIN"):
        return _NUMBER_ENCODING
    return "PLAIN"


def _smallest(leaf: pa.Array, encoding: str) -> int:
    encoded = _encoded(leaf, encoding)
    return min(encoded.size, _compressed_size(encoded, "zstd"))


def _fitting_codec(leaf: pa.Array, encoding: str, text_codec: str) -> str:
    """The codec of a column: none if zstd saves little, LZ4 for texts if it saves nearly as much."""
    encoded = _encoded(leaf, encoding)
    saved = encoded.size - _compressed_size(encoded, "zstd")
    if saved < _MIN_SAVED * encoded.size:
        return "none"
    if text_codec == "lz4" and pt.is_string(leaf.type):
        saved_by_lz4 = encoded.size - _compressed_size(encoded, "lz4_raw")
        return "lz4" if saved_by_lz4 >= _LZ4_SHARE * saved else "zstd"
    return "zstd"


def _compressed_size(data: pa.Buffer, codec: str) -> int:
    return pa.Codec(codec, _LEVEL if codec == "zstd" else None).compress(data).size


def _encoded(leaf: pa.Array, encoding: str) -> pa.Buffer:
    """The bytes of a part of a column's values in this encoding, uncompressed."""
    # of few rows a dictionary would be a larger part than it is of a row group
    size = len(leaf) if encoding == DICTIONARY else _MEASURED_SLICE
    starts = range(0, len(leaf), max(1, size, len(leaf) // _SAMPLE_SLICES))
    part = pa.chunked_array([leaf.slice(start, size) for start in starts], leaf.type)
    table = pa.table({"leaf": part}).unify_dictionaries()
    options: dict[str, Any] = {
        "compression": "none",
        "use_dictionary": encoding == DICTIONARY,
        "column_encoding": {"leaf": encoding} if encoding in _OTHER_ENCODINGS else None,
        "write_statistics": False,
        "store_schema": False,
    }
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table)
        end = sink.tell()
    return sink.getvalue()[:end]


def _is_integral(kind: pa.DataType) -> bool:
    """Whether Parquet stores values of the type as whole numbers of four or eight bytes."""
    return pt.is_integer(kind) or pt.is_date32(kind) or pt.is_time(kind) or pt.is_timestamp(kind)


def _sample(rows: pa.Table) -> pa.Table:
    """A few slices spread over the rows, since sorted data repeat more within a slice than over the file."""
    if rows.num_rows <= _SAMPLE_SLICES * _SLICE_ROWS:
        return rows
    starts = np.linspace(0, rows.num_rows - _SLICE_ROWS, _SAMPLE_SLICES).astype(int).tolist()
    return pa.concat_tables([rows.slice(start, _SLICE_ROWS) for start in starts])


def leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The values of a column's leaves, by Parquet path."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if not pt.is_nested(kind):
        yield path, array
    elif pt.is_struct(kind):
        for child, values in zip(kind, array.flatten(), strict=True):
            yield from leaves(f"{path}.{child.name}", values)
    elif pt.is_map(kind):
        first, last = (array.offsets[at].as_py() for at in (0, -1)) if len(array) else (0, 0)
        yield from leaves(f"{path}.key_value.key", array.keys[first:last])  # these are not cut as the maps are
        yield from leaves(f"{path}.key_value.value", array.items[first:last])
    elif is_list(kind):
        yield from leaves(f"{path}.list.element", array.flatten())
    else:
        yield path, array


def _repeats(leaf: pa.Array) -> bool:
    if pt.is_dictionary(leaf.type):
        return True
    if pt.is_boolean(leaf.type) or len(leaf) == 0:
        return False
    max_distinct = max(1, _MAX_DISTINCT_RATIO * len(leaf))
    # a slice has at most as many distinct values as the column, and is counted sooner
    if len(leaf) > _SLICE_ROWS and pc.count_distinct(leaf[:_SLICE_ROWS], mode="all").as_py() > max_distinct:
        return False
    return pc.count_distinct(leaf, mode="all").as_py() <= max_distinct


def _is_random_text(leaf: pa.Array) -> bool:
    if not (pt.is_string(leaf.type) or pt.is_binary(leaf.type)) or leaf.null_count or len(leaf) < 2:
        return False
    data, offsets = value_buffer(plain_strings(leaf))
    lengths = np.diff(offsets)
    size = int(lengths[0])
    if size < _MIN_RANDOM_LENGTH or (lengths != size).any():
        return False
    rows = data[offsets[0] : offsets[-1]].reshape(len(leaf), size)
    differs = rows[1:] != rows[:-1]
    shared = np.where(differs.any(axis=1), differs.argmax(axis=1), size)
    return float(shared.mean()) < _MAX_SHARED_PREFIX * size
