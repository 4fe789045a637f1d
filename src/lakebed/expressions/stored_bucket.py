"""The bucket of stored rows, by the texts of their record key and partition path: counts may differ by partition path.

Where SQL may not call Java both texts go to Python as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.base import RowExpression, bind_sql, quote_name, sql_literal
from lakebed.expressions.bucket import exact_hash_sql
from lakebed.expressions.bucket_numbers import Buckets, hash_of
from lakebed.format.hashes import key_list_hash, plain_strings
from lakebed.model import PARTITION_PATH, RECORD_KEY

_NO_SIGN = "2147483647L"
_LENGTH = "^(?P<length>[0-9]+):"


class BucketsByPath(Protocol):
    """The buckets of each partition path. It pickles."""

    @property
    def named(self) -> tuple[tuple[str, Buckets], ...]:
        """Partition paths with buckets of their own."""
        ...

    @property
    def rules(self) -> tuple[tuple[str, int], ...]:
        """(regular expression, count) of others, the first that is found in the path counts."""
        ...

    @property
    def count(self) -> int:
        """That of all others."""
        ...

    def buckets_in(self, path: str) -> Buckets: ...


@dataclass(frozen=True, slots=True)
class StoredBucket:
    """The bucket (int32) of rows with the columns `_hoodie_record_key` and `_hoodie_partition_path`."""

    fields: tuple[str, ...]
    by_path: BucketsByPath

    @property
    def columns(self) -> tuple[str, ...]:
        return (RECORD_KEY, PARTITION_PATH)

    def sql(self, schema: pa.Schema) -> str:
        key, path = quote_name(RECORD_KEY), quote_name(PARTITION_PATH)
        hashed = bind_sql("lb_key", key, exact_hash_sql("lb_key", self.fields))
        choice = self._choice(path, "lb_hash")
        return f"CAST({bind_sql('lb_hash', f'({hashed} & {_NO_SIGN})', choice)} AS INT)"

    def _choice(self, path: str, hashed: str) -> str:
        by_path = self.by_path
        cases = [f"WHEN {path} = {sql_literal(p)} THEN {_number_sql(b, hashed)}" for p, b in by_path.named]
        cases += [f"WHEN {path} RLIKE {sql_literal(r)} THEN {hashed} % {n}L" for r, n in by_path.rules]
        other = f"{hashed} % {by_path.count}L"
        return f"CASE {' '.join(cases)} ELSE {other} END" if cases else other

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        keys, paths = (batch.column(batch.schema.get_field_index(name)) for name in self.columns)
        return self._of(keys, paths)

    @property
    def hashed(self) -> RowExpression:
        return _BothTexts()

    def of_texts(self, texts: pa.Array) -> pa.Array:
        lengths = pc.struct_field(pc.extract_regex(texts, _LENGTH), "length").cast(pa.int64())
        rest = pc.replace_substring_regex(texts, _LENGTH, "")
        keys = _by_value(lengths, rest, lambda length, some: pc.utf8_slice_codeunits(some, length))
        paths = _by_value(lengths, rest, lambda length, some: pc.utf8_slice_codeunits(some, 0, length))
        return self._of(keys, paths)

    def _of(self, keys: pa.Array, paths: pa.Array) -> pa.Array:
        hashes = hash_of(key_list_hash(plain_strings(keys), self.fields))
        encoded = paths.dictionary_encode() if not pa.types.is_dictionary(paths.type) else paths
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        found = np.zeros(len(hashes), np.int32)
        for code in np.unique(codes):
            mine = codes == code
            found[mine] = self.by_path.buckets_in(encoded.dictionary[int(code)].as_py()).numbers(hashes[mine])
        return pa.array(found)


@dataclass(frozen=True, slots=True)
class _BothTexts:
    """Path and key as one text that no other pair gives."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (RECORD_KEY, PARTITION_PATH)

    def sql(self, schema: pa.Schema) -> str:
        key, path = quote_name(RECORD_KEY), quote_name(PARTITION_PATH)
        return f"concat(CAST(length({path}) AS STRING), ':', {path}, {key})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        key, path = (batch.column(batch.schema.get_field_index(name)) for name in self.columns)
        size = pc.utf8_length(path).cast(pa.string())
        return pc.binary_join_element_wise(size, ":", path, key, "")


def _number_sql(buckets: Buckets, hashed: str) -> str:
    cases = [
        f"WHEN {hashed} % {modulus}L IN ({', '.join(f'{n}L' for n in numbers)}) THEN {hashed} % {modulus}L"
        for modulus, numbers in buckets.by_modulus()
    ]
    other = f"{hashed} % {buckets.count}L"
    return f"CASE {' '.join(cases)} ELSE {other} END" if cases else other


def _by_value(values: pa.Array, texts: pa.Array, part: Callable[[int, pa.Array], pa.Array]) -> pa.Array:
    """A part of each text by a number that goes with it; few numbers occur."""
    codes = values.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(codes[order]) != 0)) if len(order) else []
    parts: list[pa.Array] = []
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        parts.append(part(int(codes[order[start]]), texts.take(pa.array(order[start:end]))))
    sorted_texts = pa.concat_arrays(parts) if parts else pa.array([], pa.string())
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return sorted_texts.take(pa.array(back))
