"""Pruning: what a filter rules out goes, and nothing else."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.filters.sql import parse_filter
from lakebed.format.hashes import bucket_ids
from lakebed.metadata.lookups import snapshot_of
from lakebed.properties.table_config import TableConfig
from lakebed.read.keys import bucket_layout, partition_layout, partition_paths_may_be_stale
from lakebed.read.prune import BucketLayout, PartitionLayout, prune_buckets, prune_partitions
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.timeline import Timeline
from support.random_filters import FilterMaker

SCHEMA = pa.schema(
    {
        "city": pa.string(),
        "day": pa.date32(),
        "n": pa.int32(),
        "ok": pa.bool_(),
        "ms": pa.int64(),
        "amount": pa.decimal128(6, 2),
        "x": pa.float64(),
        "code": pa.string(),
        "_hoodie_partition_path": pa.string(),
    }
)
NULL = "__HIVE_DEFAULT_PARTITION__"


def layout(*fields: str, **settings: bool) -> PartitionLayout:
    types = {f: SCHEMA.field(f).type for f in fields}
    return PartitionLayout(fields, types, (True,) * len(fields), **settings)  # type: ignore[arg-type]


def remaining_paths(condition: str, shape: PartitionLayout, *partitions: str) -> list[str]:
    return prune_partitions(parse_filter(condition, SCHEMA), shape, partitions)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("city = 'oslo'", ["oslo"]),
        ("city in ('oslo', 'rome')", ["oslo", "rome"]),
        ("city != 'oslo'", ["oslo", "rome", "a/b", NULL]),
        ("city > 'oslo'", ["oslo", "rome", "a/b"]),
        ("city >= 'p'", ["rome", "a/b"]),
        ("city is null", [NULL]),
        ("city = ''", [NULL]),
        ("city = 'a/b'", ["a/b"]),
        ("city = 'a//b/'", ["a/b"]),
        ("city != 'a/b'", ["oslo", "rome", "a/b", NULL]),
        ("city = 'oslo' and n = 1", ["oslo"]),
        ("city = 'oslo' or n = 1", ["oslo", "rome", "a/b", NULL]),
        ("not (city in ('oslo'))", ["oslo", "rome", "a/b", NULL]),
        ("city like 'o%'", ["oslo", "rome", "a/b"]),
        ("upper(city) = 'OSLO'", ["oslo", "rome", "a/b", NULL]),
        ("city rlike 'o' and city = 'rome'", ["rome"]),
        ("n = 1", ["oslo", "rome", "a/b", NULL]),
        ("_hoodie_partition_path = 'rome'", ["rome"]),
    ],
)
def test_text_partitions_are_pruned(condition: str, expected: list[str]) -> None:
    found = remaining_paths(condition, layout("city"), "oslo", "rome", "a/b", NULL)
    assert found == expected


def test_encoded_paths_hold_the_full_value() -> None:
    shape = layout("city", url_encode=True, hive_style=True)
    paths = ("city=oslo", "city=a%2Fb", f"city={NULL}", "other=1")
    assert remaining_paths("city = 'a/b'", shape, *paths) == ["city=a%2Fb", "other=1"]
    assert remaining_paths("city != 'oslo'", shape, *paths) == ["city=a%2Fb", f"city={NULL}", "other=1"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("day = '2024-02-03'", ["2024-02-03"]),
        ("day > '2024-02-03'", ["2024-02-04", "odd"]),
        ("day is null", [NULL, "odd"]),
        ("not (day > '2024-02-03')", ["2024-02-03", "odd"]),
        ("day <=> null", [NULL, "odd"]),
    ],
)
def test_date_partitions_are_pruned(condition: str, expected: list[str]) -> None:
    found = remaining_paths(condition, layout("day"), "2024-02-03", "2024-02-04", NULL, "odd")
    if condition.startswith("day ="):
        expected = [*expected, "odd"]
    assert sorted(found) == sorted(expected)


def test_each_of_several_partition_fields_prunes() -> None:
    shape = layout("city", "n", "ok")
    paths = ("oslo/1/true", "oslo/2/false", "rome/1/true", "a/b/1/true")
    assert remaining_paths("n = 1", shape, *paths) == ["oslo/1/true", "rome/1/true", "a/b/1/true"]
    # one part too many is a slash in the only text
    assert remaining_paths("ok = false", shape, *paths) == ["oslo/2/false"]
    assert remaining_paths("city = 'rome'", shape, *paths) == ["rome/1/true"]
    assert remaining_paths("city = 'a/b'", shape, *paths) == ["a/b/1/true"]
    assert remaining_paths("city = 'a'", layout("city", "code"), "a/b/c", "a/b", "x/y") == ["a/b/c", "a/b"]
    assert remaining_paths("code = 'b'", layout("city", "code"), "a/b/c", "a/b", "x/y") == ["a/b/c", "a/b"]


def test_dates_with_slashes_are_pruned() -> None:
    shape = layout("day", slash_dates=True)
    assert remaining_paths("day >= '2024-02-04'", shape, "2024/02/03", "2024/02/04") == ["2024/02/04"]


def config(**properties: str) -> TableConfig:
    base = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "9",
        "hoodie.table.recordkey.fields": "code",
    }
    return TableConfig(base | {k.replace("__", "."): v for k, v in properties.items()})


TIMESTAMP = {
    "hoodie__table__partition__fields": "ms",
    "hoodie__table__keygenerator__type": "TIMESTAMP",
    "hoodie__keygen__timebased__timestamp__type": "EPOCHMILLISECONDS",
    "hoodie__keygen__timebased__output__dateformat": "yyyy/MM/dd",
}


def test_time_formats_go_forward_for_equality_when_the_zone_is_fixed() -> None:
    fixed = config(**TIMESTAMP, hoodie__keygen__timebased__timezone="UTC")
    shape = partition_layout(fixed, SCHEMA)
    assert shape is not None
    paths = ("1970/01/01", "1970/01/02")
    assert remaining_paths("ms = 5", shape, *paths) == ["1970/01/01"]
    assert remaining_paths("ms in (5, 86400000)", shape, *paths) == list(paths)
    assert remaining_paths("ms > 86400000", shape, *paths) == list(paths)
    assert remaining_paths("not (ms = 5)", shape, *paths) == list(paths)


def test_time_formats_of_an_unknown_zone_never_prune() -> None:
    shape = partition_layout(config(**TIMESTAMP), SCHEMA)
    assert shape is not None
    assert remaining_paths("ms = 5", shape, "1970/01/01", "1970/01/02") == ["1970/01/01", "1970/01/02"]


def test_decimals_go_forward_for_equality() -> None:
    shape = partition_layout(config(hoodie__table__partition__fields="amount"), SCHEMA)
    assert shape is not None
    assert remaining_paths("amount = 1.5", shape, "1.50", "2.00") == ["1.50"]
    assert remaining_paths("amount > 1.5", shape, "1.50", "2.00") == ["1.50", "2.00"]


def test_rows_that_stay_where_they_are_forbid_partition_pruning() -> None:
    stays = config(
        hoodie__table__partition__fields="city",
        **{"lakebed.index.type": "global_simple", "lakebed.index.update_partition": "false"},
    )
    storage = MemoryStorage("rows-that-stay")
    assert partition_paths_may_be_stale(storage, stays)
    assert not partition_paths_may_be_stale(storage, config(hoodie__table__partition__fields="city"))


def test_key_generators_that_are_not_known_never_prune() -> None:
    own = {"hoodie.table.keygenerator.class": "com.example.Keys", "hoodie.table.partition.fields": "city"}
    assert partition_layout(config(**own), SCHEMA) is None


def test_a_number_that_its_type_cannot_have_hides_no_partition() -> None:
    shape = layout("n")
    assert remaining_paths("n = 1", shape, "1", "2", "2147483647", "2147483648", "9" * 30) == [
        "1",
        "2147483648",
        "9" * 30,
    ]


@pytest.mark.parametrize(
    ("condition", "encoded", "plain"),
    [
        ("city like 'os%'", ["oslo"], ["oslo", "rome", "a%2Fb"]),
        ("starts_with(city, 'a/')", ["a%2Fb"], ["oslo", "rome", "a%2Fb"]),
        ("city > 'a/b'", ["oslo", "rome"], ["oslo", "rome", "a%2Fb"]),
    ],
)
def test_beginnings_of_texts_prune_where_the_path_shows_the_text_itself(
    condition: str, encoded: list[str], plain: list[str]
) -> None:
    paths = ("oslo", "rome", "a%2Fb", NULL)
    assert remaining_paths(condition, layout("city", url_encode=True), *paths) == encoded
    assert remaining_paths(condition, layout("city"), *paths) == plain


def test_a_flag_alone_prunes() -> None:
    assert remaining_paths("ok", layout("ok"), "true", "false", NULL, "odd") == ["true", "odd"]
    assert remaining_paths("not ok", layout("ok"), "true", "false", NULL, "odd") == ["false", "odd"]


WRITTEN: dict[str, list[Any]] = {
    "city": ["oslo", "rome", "a/b", "a", "1", "10", "oslo0", "Zürich", "", NULL, None],
    "n": [-3, 0, 1, 2, 7, 10, None],
    "ok": [True, False, None],
    "day": [date(2024, 1, 1), date(2024, 2, 3), None],
    "amount": [Decimal("1.50"), Decimal("2.00"), None],
}
# The fields of a table, and how many paths 40 random conditions rule out at least.
MIN_RULED_OUT = {"city": 52, "n": 45, "ok": 31, "day": 23, "amount": 14, "city,n": 216, "n,city": 204}


def ruled_out_of(fields: str, encode: bool) -> int:
    generator = {"hoodie__table__keygenerator__type": "COMPLEX"} if "," in fields else {}
    urlencode = {"hoodie__datasource__write__partitionpath__urlencode": str(encode).lower()}
    settings = config(hoodie__table__partition__fields=fields, **urlencode, **generator)
    shape, keys, dice = partition_layout(settings, SCHEMA), settings.keys, random.Random(0)
    assert shape is not None
    assert shape.url_encode is encode
    columns = {name: pa.array(dice.choices(WRITTEN[name], k=30), SCHEMA.field(name).type) for name in WRITTEN}
    rows = pa.RecordBatch.from_pydict(columns)
    paths = keys.partition_path.arrow(rows)
    table = pa.Table.from_batches([rows]).append_column("_hoodie_partition_path", paths)
    maker, known_paths, ruled_out = FilterMaker(table, 0), pc.unique(paths).to_pylist(), 0
    for condition in (parse_filter(maker.filter(), table.schema) for _ in range(40)):
        remaining = prune_partitions(condition, shape, known_paths)
        needed = set(table.filter(condition.to_arrow())["_hoodie_partition_path"].to_pylist())
        assert needed <= set(remaining), (fields, encode, condition.text, needed - set(remaining))
        ruled_out += len(known_paths) - len(remaining)
    return ruled_out


def test_random_conditions_lose_no_row_and_rule_paths_out() -> None:
    found = {fields: min(ruled_out_of(fields, encode) for encode in (True, False)) for fields in MIN_RULED_OUT}
    assert all(found[fields] >= number for fields, number in MIN_RULED_OUT.items()), found


# -- buckets


def empty_table(properties: dict[str, str]) -> Snapshot:
    storage = MemoryStorage("pruning")
    settings = TableConfig({"hoodie.timeline.layout.version": "2", **properties})
    return snapshot_of(storage, settings, Timeline.of_files(storage, settings, {}))


def buckets(key: tuple[str, ...], hashed: tuple[str, ...], count: int = 64) -> BucketLayout:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "9",
        "hoodie.table.recordkey.fields": ",".join(key),
        "hoodie.table.keygenerator.type": "COMPLEX" if len(key) > 1 else "NON_PARTITION",
        "lakebed.index.type": "bucket",
        "lakebed.index.bucket.count": str(count),
        "lakebed.index.bucket.fields": ",".join(hashed),
    }
    found = bucket_layout(empty_table(properties), SCHEMA)
    assert found is not None
    return found


def numbers(condition: str, shape: BucketLayout) -> set[int] | None:
    found = prune_buckets(parse_filter(condition, SCHEMA), shape)
    return None if found is None else set(found)


def of(keys: list[str], fields: tuple[str, ...]) -> set[int]:
    return set(bucket_ids(pa.array(keys), fields, 64).tolist())


def test_conditions_on_one_hash_field_name_its_buckets() -> None:
    shape = buckets(("city",), ("city",))
    assert numbers("city = 'a'", shape) == of(["a"], ("city",))
    assert numbers("city in ('a', 'b', null)", shape) == of(["a", "b"], ("city",))
    assert numbers("city = 'a' or city = 'b'", shape) == of(["a", "b"], ("city",))
    assert numbers("(city = 'a' or city = 'b') and city = 'b' and n > 1", shape) == of(["b"], ("city",))
    assert numbers("city = 'a' and city = 'b'", shape) == set()
    assert numbers("city = 'x,y:z'", shape) == of(["x,y:z"], ("city",))


def test_conditions_on_the_stored_key_name_its_buckets() -> None:
    shape = buckets(("city", "n"), ("n",))
    schema = pa.schema([pa.field("_hoodie_record_key", pa.string()), *SCHEMA])

    def found(condition: str) -> frozenset[int] | None:
        return prune_buckets(parse_filter(condition, schema), shape)

    key, other = "city:a,n:7", "city:b,n:8"
    assert found(f"_hoodie_record_key = '{key}'") == of([key], ("n",))
    assert found(f"_hoodie_record_key in ('{key}', '{other}') and ok") == of([key, other], ("n",))
    assert found(f"_hoodie_record_key = '{key}' and city = 'b' and n = 8") == of([key], ("n",)) & of([other], ("n",))
    assert found(f"_hoodie_record_key > '{key}'") is None
    assert found(f"_hoodie_record_key = '{key}' or n = 8") is None


@pytest.mark.parametrize(
    "condition",
    [
        "city > 'a'",
        "city = 'a' or n = 1",
        "not (city = 'a')",
        "n = 1",
        "city like 'a'",
        "upper(city) = 'A'",
        "city = 5",
    ],
)
def test_other_predicates_never_prune(condition: str) -> None:
    assert numbers(condition, buckets(("city",), ("city",))) is None


def test_typed_constants_become_key_text() -> None:
    assert numbers("n = 7", buckets(("n",), ("n",))) == of(["7"], ("n",))
    assert numbers("n = 7.0", buckets(("n",), ("n",))) == of(["7"], ("n",))
    assert numbers("n = 7.5", buckets(("n",), ("n",))) == set()
    assert numbers("day = '2024-2-3'", buckets(("day",), ("day",))) == of(["2024-02-03"], ("day",))
    assert numbers("amount = 1.5", buckets(("amount",), ("amount",))) == of(["1.50"], ("amount",))
    assert numbers("ok", buckets(("ok",), ("ok",))) is None
    assert numbers("ok = true", buckets(("ok",), ("ok",))) == of(["true"], ("ok",))
    # two texts for one value: 0.0 and -0.0
    assert numbers("x = 0.0", buckets(("x",), ("x",))) is None


def test_conditions_on_all_hash_fields_name_their_buckets() -> None:
    shape = buckets(("city", "n"), ("city", "n"))
    assert numbers("city = 'a'", shape) is None
    assert numbers("city in ('a', 'b') and n = 1", shape) == of(["city:a,n:1", "city:b,n:1"], ("city", "n"))
    assert numbers("city = '' and n = 1", shape) == of(["city:__empty__,n:1"], ("city", "n"))


def test_a_number_next_to_the_hash_field_cannot_confuse_the_key_parser() -> None:
    assert numbers("city = 'a'", buckets(("city", "n"), ("city",))) == of(["city:a,n:5"], ("city",))


def test_a_text_next_to_the_hash_field_can_confuse_the_key_parser() -> None:
    shape = buckets(("city", "code"), ("city",))
    assert numbers("city = 'a'", shape) is None
    assert of(["city:a,code:1,city:b"], ("city",)) != of(["city:a,code:1"], ("city",))
    assert numbers("city = 'a' and code = '1,city:b'", shape) == of(["city:a,code:1,city:b"], ("city",))


def test_old_complex_keys_of_one_field_are_looked_for_in_both_forms() -> None:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "8",
        "hoodie.table.recordkey.fields": "city",
        "hoodie.table.partition.fields": "n,ok",
        "hoodie.table.keygenerator.type": "COMPLEX",
        "lakebed.index.type": "bucket",
        "lakebed.index.bucket.count": "64",
    }
    found = bucket_layout(empty_table(properties), SCHEMA)
    assert found is not None
    assert numbers("city = 'a'", found) == of(["a", "city:a"], ("city",))


def test_constants_have_no_part_in_types_that_spark_would_cast() -> None:
    assert parse_filter("amount = 1.5", SCHEMA).root.right.value == Decimal("1.50")  # type: ignore[union-attr]
    assert parse_filter("day = '2024-02-03'", SCHEMA).root.right.value == date(2024, 2, 3)  # type: ignore[union-attr]
