"""Java's string hash and the bucket of a record key, in plain Spark SQL and in Arrow.

The bucket is defined on the key's text as Hudi's index parses it. In SQL most rows need no parsing: the hash is
taken of the field values. Rows whose text that parser could read differently (a comma and a colon inside a value)
are parsed in SQL as well, by a branch that costs the other rows nothing but a search for the two characters.

The bucket of stored rows depends on the texts of their record key and partition path: counts may differ by partition
path, and single buckets may be split (extendible hashing). Where SQL may not call Java both texts go to Python as
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption
from lakebed.expressions.base import Constant, RowExpression, bind_sql, quote_name, sql_literal
from lakebed.expressions.key_generators import KeyGenerator
from lakebed.expressions.key_text import EMPTY_VALUE, NULL_VALUE, CompositeKey, KeyText, SingleKey
from lakebed.format.hashes import (
    Int32s,
    bucket_ids,
    bucket_of_hash,
    java_hash,
    java_list_hash,
    key_list_hash,
    plain_strings,
)
from lakebed.model import PARTITION_PATH, RECORD_KEY
from lakebed.schema.plain_arrow import as_numpy, text_scalar
from lakebed.sharing import once

_LOW_32_BITS = "4294967295L"
_NO_SIGN = "2147483647L"
# A comma that begins a field in Hudi's reading of a composite key: no comma or colon between it and the next colon.
_FIELD_BORDER = ",(?=[^,:]*:)"


def java_hash_sql(text: str) -> str:
    """The Spark SQL (bigint) for Java's `String.hashCode` of a string expression; the hash of null is 0."""
    return f"CAST(java_method('java.util.Objects', 'hashCode', {text}) AS BIGINT)"


@runtime_checkable
class TextHash(RowExpression, Protocol):
    """An expression that is a hash of one text, so that if SQL may not call Java only that text is sent to Python."""

    @property
    def hashed(self) -> RowExpression:
        """The expression of the text that is hashed."""
        ...

    def of_texts(self, texts: pa.Array) -> pa.Array:
        """The expression's values (int32) for these texts."""
        ...


@dataclass(frozen=True, slots=True)
class JavaHash:
    """An expression for Java's `String.hashCode` (int32) of a text column or expression; null gives 0."""

    text: RowExpression

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text.columns

    def sql(self, schema: pa.Schema) -> str:
        return f"CAST({java_hash_sql(self.text.sql(schema))} AS INT)"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return self.of_texts(self.text.arrow(batch))

    @property
    def hashed(self) -> RowExpression:
        return self.text

    def of_texts(self, texts: pa.Array) -> pa.Array:
        return pa.array(java_hash(texts))


@dataclass(frozen=True, slots=True)
class Bucket:
    """An expression for the bucket (int32, 0 to `buckets` - 1) of each row's record key under Hudi's simple bucket
    index; a row without a key gets one too.

    `fields` are the hash fields, a subset of the key fields (empty: all); their order does not matter.
    """

    keys: KeyGenerator
    fields: tuple[str, ...]
    buckets: int

    def __post_init__(self) -> None:
        strange = [name for name in self.fields if name not in self.keys.key_fields]
        if strange:
            raise InvalidOption(
                f"bucket hash fields that are no key fields: {', '.join(strange)}",
                hint=f"Choose among the key fields: {', '.join(self.keys.key_fields) or 'none, they are generated'}",
            )
        if self.buckets < 1:
            raise InvalidOption(f"{self.buckets} buckets", hint="The number of buckets is at least 1")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.keys.record_key.columns

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The hash fields in the order in which their values are hashed, that of the key."""
        fields = self.fields or self.keys.key_fields
        return tuple([name for name in self.keys.key_fields if name in fields])

    def confusing_sql(self, schema: pa.Schema) -> str:
        """The Spark SQL predicate for rows whose key must be parsed as Hudi parses it; `FALSE` if no row can be one."""
        key = self.keys.record_key
        texts = _texts_of(key)
        if isinstance(key, CompositeKey) and not _are_plain_names(texts):
            return "TRUE"
        values = [text.sql(schema) for text in texts if text.is_free_text(schema)]
        # with its name before it (`id:a,b`) a single field is confused by a comma alone
        named_alone = isinstance(key, CompositeKey) and len(texts) == 1
        tests = [f"contains({v}, ',')" + ("" if named_alone else f" AND contains({v}, ':')") for v in values]
        return " OR ".join(f"coalesce({test}, FALSE)" for test in tests) or "FALSE"

    def formula_sql(self, schema: pa.Schema) -> str:
        """The Spark SQL of the list hash (bigint, the low 31 bits count) from the field values, correct for rows that
        do not fulfil `confusing_sql`."""
        key = self.keys.record_key
        texts = _texts_of(key)
        if not isinstance(key, CompositeKey) or len(texts) == 1:
            return f"(31L + {java_hash_sql(key.sql(schema))})"
        total = "1L"
        for text in texts:
            if text.column in self.hash_fields:
                total = f"((31L * {total} + {_value_hash_sql(text, schema)}) & {_LOW_32_BITS})"
        return total

    def exact_sql(self, schema: pa.Schema) -> str:
        """The Spark SQL of the list hash by Hudi's parsing of the key text: correct for any key, at several times the
        cost of the formula."""
        # bound, since code generated for many copies of a key grows beyond what the JVM compiles
        return bind_sql("lb_key", self.keys.record_key.sql(schema), exact_hash_sql("lb_key", self.hash_fields))

    def sql(self, schema: pa.Schema) -> str:
        confusing = self.confusing_sql(schema)
        total = self.formula_sql(schema)
        if confusing != "FALSE":
            total = f"CASE WHEN {confusing} THEN {self.exact_sql(schema)} ELSE {total} END"
        return f"CAST(({total} & {_NO_SIGN}) % {self.buckets}L AS INT)"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        key = self.keys.record_key
        texts = _texts_of(key)
        if not isinstance(key, CompositeKey) or len(texts) == 1 or not _are_plain_names(texts):
            return self.of_texts(key.arrow(batch))
        values = [text.arrow(batch) for text in texts]
        hashed = [_value_hash(v) for t, v in zip(texts, values, strict=True) if t.column in self.hash_fields]
        numbers = bucket_of_hash(java_list_hash(hashed), self.buckets)
        rows = _confusing_rows([v for t, v in zip(texts, values, strict=True) if t.is_free_text(batch.schema)])
        if len(rows):
            odd = pa.array(rows)
            numbers[rows] = bucket_ids(key.arrow(batch.take(odd)), self.hash_fields, self.buckets)
        return pa.array(numbers)

    @property
    def hashed(self) -> RowExpression:
        return self.keys.record_key

    def of_texts(self, texts: pa.Array) -> pa.Array:
        """The buckets of record key texts."""
        return pa.array(bucket_ids(texts, self.hash_fields, self.buckets))


def exact_hash_sql(key: str, hash_fields: tuple[str, ...]) -> str:
    """Spark SQL of the list hash of a composite key's text, parsed as Hudi's bucket index does.

    The text up to the first colon names the first field. From there on a field begins after each comma that has no
    other comma and no colon between it and the next colon.
    """
    first = f"substring_index({key}, ':', 1)"
    tail = f"substr({key}, length({first}) + 2)"
    named = f"CASE WHEN lb_at = 0 THEN concat({first}, ':', lb_part) ELSE lb_part END"
    parts = f"transform(split({tail}, {sql_literal(_FIELD_BORDER)}), (lb_part, lb_at) -> {named})"
    name = "substring_index(lb_part, ':', 1)"
    matches = " OR ".join(f"{name} = {sql_literal(field)}" for field in hash_fields)
    value = f"substr(lb_part, length({name}) + 2)"
    step = (
        f"(31L * coalesce(lb_sum, 1L) + CASE WHEN {value} IN ('{NULL_VALUE}', '{EMPTY_VALUE}') THEN 0L "
        f"ELSE {java_hash_sql(value)} END) & {_LOW_32_BITS}"
    )
    parsed = (
        f"aggregate(filter({parts}, lb_part -> {matches or 'TRUE'}), CAST(NULL AS BIGINT), (lb_sum, lb_part) -> {step})"
    )
    key_hash = f"31L + {java_hash_sql(key)}"
    # text that is no list of fields, or names none of the hash fields, counts as a whole
    return f"coalesce(CASE WHEN contains({key}, ',') AND contains({key}, ':') THEN {parsed} END, {key_hash})"


def _texts_of(key: RowExpression) -> tuple[KeyText, ...]:
    match key:
        case SingleKey(text):
            return (text,)
        case CompositeKey(texts):
            return texts
        case Constant():
            raise InvalidOption(
                "a bucket index needs key fields, this table's keys are generated",
                hint="Name the key fields, or choose another index",
            )
        case _:
            raise TypeError(f"no bucket of a {type(key).__name__}")


def _are_plain_names(texts: tuple[KeyText, ...]) -> bool:
    return not any("," in text.column or ":" in text.column for text in texts)


def _value_hash(values: pa.Array) -> npt.NDArray[np.int32]:
    hashed = java_hash(values)
    special = pc.is_in(values, pa.array([NULL_VALUE, EMPTY_VALUE]))
    if pc.any(special).as_py():
        hashed[as_numpy(special)] = 0
    return hashed


def _confusing_rows(values: list[pa.Array]) -> npt.NDArray[np.int64]:
    """The numbers of the rows in which one of the values has both a comma and a colon."""
    rows = np.empty(0, np.int64)
    for value in values:
        comma = np.flatnonzero(as_numpy(pc.fill_null(pc.match_substring(value, ","), False)))
        colon = as_numpy(pc.match_substring(value.take(pa.array(comma)), ":"))
        rows = np.union1d(rows, comma[colon])
    return rows


def _value_hash_sql(text: KeyText, schema: pa.Schema) -> str:
    value = text.sql(schema)
    hashed = java_hash_sql(value)
    if not text.is_free_text(schema):
        return hashed
    # these two texts mean null and the empty string, which hash to 0 by themselves
    return f"CASE WHEN {value} IN ('{NULL_VALUE}', '{EMPTY_VALUE}') THEN 0L ELSE {hashed} END"


# A bucket's number is less than a hash, which has 31 bits.
_HASH_BITS = 31


@dataclass(frozen=True)
class Buckets:
    """The buckets of a partition path: hash modulo `count`, but for buckets that were split.

    `depths` has (number, depth) of every bucket that came of a split: its keys are those whose hash modulo
    `count << depth` is its number. A bucket b that splits becomes b and b + (count << depth), each one deeper.

    >>> Buckets(2, ((1, 1), (3, 1))).numbers(np.array([0, 1, 2, 3, 5], np.int32)).tolist()
    [0, 1, 0, 3, 1]
    """

    count: int
    depths: tuple[tuple[int, int], ...] = ()

    @once
    def moduli(self) -> dict[int, int]:
        """A dict from the number of each bucket to its modulus: a key is in the bucket if its hash modulo that is the
        number."""
        split = {number % self.count for number, _ in self.depths}
        unsplit = {number: self.count for number in range(self.count) if number not in split}
        return {**unsplit, **{number: self.count << depth for number, depth in self.depths}}

    @property
    def numbers_end(self) -> int:
        """The number after the greatest bucket number."""
        return max((self.count, *(number + 1 for number, _ in self.depths)))

    def has(self, number: int) -> bool:
        """Whether there is a bucket of this number."""
        return number < self.count if not self.depths else number in self.moduli

    def numbers(self, hashes: Int32s) -> Int32s:
        """The bucket of each hash (sign bit off)."""
        numbers = (hashes % np.int32(self.count)).astype(np.int32)
        for modulus, leaves in self.by_modulus():
            remainders = (hashes.astype(np.int64) % modulus).astype(np.int32)
            is_leaf = np.isin(remainders, np.array(leaves, np.int32))
            numbers[is_leaf] = remainders[is_leaf]
        return numbers

    def by_modulus(self) -> list[tuple[int, list[int]]]:
        """The moduli of split buckets, each with the numbers of its buckets."""
        leaves: dict[int, list[int]] = {}
        for number, depth in sorted(self.depths):
            leaves.setdefault(self.count << depth, []).append(number)
        return sorted(leaves.items())

    def spread(self, number: int, other: Buckets) -> tuple[int, ...]:
        """The numbers of the buckets of `other` in which keys of the bucket `number` may be."""
        if not self.depths and not other.depths:
            step = np.gcd(self.count, other.count)
            return tuple(range(number % int(step), other.count, int(step)))
        modulus = self.moduli[number]
        return tuple(n for n, m in sorted(other.moduli.items()) if (n - number) % int(np.gcd(modulus, m)) == 0)

    def split(self, number: int, times: int = 1) -> Buckets:
        """These buckets with bucket `number` split `times` times: each split doubles its parts."""
        depth = dict(self.depths).get(number, 0)
        if (self.count << (depth + times)) >> _HASH_BITS:
            raise ValueError(f"bucket {number} cannot be split {times} times")
        step = self.count << depth
        leaves = [(number + at * step, depth + times) for at in range(1 << times)]
        return Buckets(self.count, tuple(sorted([*(d for d in self.depths if d[0] != number), *leaves])))


def hash_of(list_hash: Int32s) -> npt.NDArray[np.int32]:
    """The list hash without its sign bit."""
    return list_hash & np.int32(0x7FFFFFFF)


_LENGTH = "^(?P<length>[0-9]+):"


class BucketsByPath(Protocol):
    """The buckets of each partition path. It can be pickled."""

    @property
    def named(self) -> tuple[tuple[str, Buckets], ...]:
        """The partition paths with their own buckets."""
        ...

    @property
    def rules(self) -> tuple[tuple[str, int], ...]:
        """The pairs (regular expression, count) for other partition paths; the first that matches the path counts."""
        ...

    @property
    def count(self) -> int:
        """The number of buckets of every other partition path."""
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
        default = f"{hashed} % {by_path.count}L"
        return f"CASE {' '.join(cases)} ELSE {default} END" if cases else default

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        keys, paths = (batch.column(batch.schema.get_field_index(name)) for name in self.columns)
        return self._of(keys, paths)

    @property
    def hashed(self) -> RowExpression:
        return _BothTexts()

    def of_texts(self, texts: pa.Array) -> pa.Array:
        lengths = pc.struct_field(pc.extract_regex(texts, _LENGTH), "length").cast(pa.int64())
        contents = pc.replace_substring_regex(texts, _LENGTH, "")
        keys = _by_value(lengths, contents, lambda length, content: pc.utf8_slice_codeunits(content, length))
        paths = _by_value(lengths, contents, lambda length, content: pc.utf8_slice_codeunits(content, 0, length))
        return self._of(keys, paths)

    def _of(self, keys: pa.Array, paths: pa.Array) -> pa.Array:
        hashes = hash_of(key_list_hash(plain_strings(keys), self.fields))
        encoded = paths.dictionary_encode() if not pa.types.is_dictionary(paths.type) else paths
        codes = as_numpy(encoded.indices)
        numbers = np.zeros(len(hashes), np.int32)
        for code in np.unique(codes):
            in_partition = codes == code
            numbers[in_partition] = self.by_path.buckets_in(encoded.dictionary[int(code)].as_py()).numbers(
                hashes[in_partition]
            )
        return pa.array(numbers)


@dataclass(frozen=True, slots=True)
class _BothTexts:
    """An expression for partition path and record key as one text, which differs for any other pair."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (RECORD_KEY, PARTITION_PATH)

    def sql(self, schema: pa.Schema) -> str:
        key, path = quote_name(RECORD_KEY), quote_name(PARTITION_PATH)
        return f"concat(CAST(length({path}) AS STRING), ':', {path}, {key})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        key, path = (batch.column(batch.schema.get_field_index(name)) for name in self.columns)
        size = pc.utf8_length(path).cast(pa.string())
        return pc.binary_join_element_wise(size, text_scalar(":"), path, key, text_scalar(""))


def _number_sql(buckets: Buckets, hashed: str) -> str:
    cases = [
        f"WHEN {hashed} % {modulus}L IN ({', '.join(f'{n}L' for n in numbers)}) THEN {hashed} % {modulus}L"
        for modulus, numbers in buckets.by_modulus()
    ]
    default = f"{hashed} % {buckets.count}L"
    return f"CASE {' '.join(cases)} ELSE {default} END" if cases else default


def _by_value(values: pa.Array, texts: pa.Array, part: Callable[[int, pa.Array], pa.Array]) -> pa.Array:
    """For each text the part that its number in `values` selects. The function makes one pass per distinct number."""
    codes = as_numpy(values)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(codes[order]) != 0)) if len(order) else []
    parts: list[pa.Array] = []
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        parts.append(part(int(codes[order[start]]), texts.take(pa.array(order[start:end]))))
    sorted_texts = pa.concat_arrays(parts) if parts else pa.array([], pa.string())
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return sorted_texts.take(pa.array(back))
