from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.index import registry
from lakebed.index.base import Index
from lakebed.index.bucket import BucketIndex
from lakebed.index.registry import check_same_index, index_properties, make_index, recorded_index
from lakebed.index.simple import GlobalSimpleIndex, SimpleIndex
from lakebed.properties.table_config import TableConfig
from lakebed.timeline.index_changes import index_properties as changed_properties

KEYS = ("id", "code")


@pytest.mark.parametrize(
    "made",
    [
        make_index("bucket", key_fields=KEYS, buckets=16, fields=["code"]),
        make_index("BUCKET", key_fields=KEYS),
        make_index("simple", key_fields=KEYS),
        make_index("GLOBAL_SIMPLE", key_fields=KEYS, update_partition_path=False),
        make_index("global_simple", key_fields=KEYS),
    ],
)
def test_a_recorded_index_is_opened_as_the_same_index(made: Index) -> None:
    assert isinstance(made, Index)
    recorded = {k.removeprefix("lakebed.index."): v for k, v in index_properties(made).items()}
    again = recorded_index(recorded)
    assert again is not None
    assert type(again) is type(made)
    assert again.settings() == made.settings() == recorded
    check_same_index(again, made)
    assert made.name in made.explain()


def test_properties_have_lakebeds_names() -> None:
    assert index_properties(make_index("bucket", key_fields=KEYS, buckets=16, fields=["code"])) == {
        "lakebed.index.type": "bucket",
        "lakebed.index.bucket.count": "16",
        "lakebed.index.bucket.fields": "code",
    }
    assert index_properties(GlobalSimpleIndex(False))["lakebed.index.update_partition"] == "false"
    assert recorded_index({}) is None
    bucketed = TableConfig({**index_properties(BucketIndex(4, ("id",))), "lakebed.index.why": "", "b": ""})
    assert changed_properties(bucketed, SimpleIndex().settings()) == {
        "lakebed.index.type": "simple",
        "lakebed.index.bucket.count": None,
        "lakebed.index.bucket.fields": None,
        "lakebed.index.why": None,
    }


def test_bucket_hashes_all_key_fields_in_key_order() -> None:
    assert make_index("bucket", key_fields=KEYS, fields=["code", "id"]).settings()["bucket.fields"] == "id,code"
    assert make_index(BucketIndex(3), key_fields=KEYS).settings()["bucket.fields"] == "id,code"


def test_a_bucket_index_without_a_count_has_eight() -> None:
    assert make_index("bucket", key_fields=KEYS).settings()["bucket.count"] == "8"


@pytest.mark.parametrize("name", ["INMEMORY", "flink_state"])
def test_indexes_of_other_versions_are_known_but_refused(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"{name.lower()}.*known"):
        make_index(name, key_fields=KEYS)


@pytest.mark.parametrize(
    ("name", "near"), [("buckets", "bucket"), ("simpel", "simple"), ("global_simpl", "global_simple")]
)
def test_a_wrong_name_shows_the_nearest(name: str, near: str) -> None:
    with pytest.raises(InvalidOption, match=f"Did you mean '{near}'"):
        make_index(name, key_fields=KEYS)


def test_options_of_another_index_are_refused() -> None:
    with pytest.raises(InvalidOption, match="buckets does not belong"):
        make_index("simple", key_fields=KEYS, buckets=8)
    with pytest.raises(InvalidOption, match="fields does not belong"):
        make_index("global_simple", key_fields=KEYS, fields=["id"])
    with pytest.raises(InvalidOption, match="update_partition_path does not belong"):
        make_index("bucket", key_fields=KEYS, update_partition_path=True)
    with pytest.raises(InvalidOption, match=r"'city' .* none of the key fields"):
        make_index("bucket", key_fields=KEYS, fields=["city"])
    with pytest.raises(InvalidOption, match="0 buckets"):
        BucketIndex(0)
    with pytest.raises(InvalidOption, match=r"bucket\.count is 'eight'"):
        recorded_index({"type": "bucket", "bucket.count": "eight"})


@pytest.mark.parametrize(
    ("table", "write", "says"),
    [
        (BucketIndex(8, ("id",)), BucketIndex(16, ("id",)), ["8 buckets", "16 buckets", "t.maintenance.rescale"]),
        (BucketIndex(8, ("id",)), BucketIndex(8, ("code",)), ["hashed on id", "hashed on code"]),
        (BucketIndex(8, ("id",)), SimpleIndex(), ["bucket (8 buckets, hashed on id)", "asks for simple"]),
        (SimpleIndex(), GlobalSimpleIndex(), ["simple", "global_simple (moving rows to their new partition: true)"]),
    ],
)
def test_another_index_than_the_tables_is_refused(table: Index, write: Index, says: list[str]) -> None:
    with pytest.raises(InvalidOption) as caught:
        check_same_index(table, write)
    for text in says:
        assert text in str(caught.value)
    assert caught.value.context == {"table": dict(table.settings()), "write": dict(write.settings())}


class _Elsewhere(SimpleIndex):
    name = "elsewhere"

    def __init__(self, shard: str = "none") -> None:
        self.shard = shard

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> _Elsewhere:
        return cls(settings.get("shard", "none"))

    def settings(self) -> Mapping[str, str]:
        return {"type": self.name, "shard": self.shard}


class _EntryPoint:
    name = "elsewhere"

    def __init__(self, target: Any) -> None:
        self.target = target

    def load(self) -> Any:
        return self.target


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> _EntryPoint:
    point = _EntryPoint(_Elsewhere)

    def found(group: str) -> Sequence[_EntryPoint]:
        assert group == "lakebed.indexes"
        return [point]

    monkeypatch.setattr(registry, "plugins", found)
    return point


def test_a_third_party_index_comes_in_by_entry_point(installed: _EntryPoint) -> None:
    made = make_index("elsewhere", key_fields=KEYS)
    assert isinstance(made, _Elsewhere)
    again = recorded_index({"type": "elsewhere", "shard": "7"})
    assert isinstance(again, _Elsewhere)
    assert again.shard == "7"
    with pytest.raises(InvalidOption, match="Did you mean 'elsewhere'"):
        make_index("elsewere", key_fields=KEYS)


def test_an_entry_point_that_gives_no_index_is_named(installed: _EntryPoint) -> None:
    installed.target = dict
    with pytest.raises(InvalidOption, match="gives a dict, which is no lakebed Index"):
        make_index("elsewhere", key_fields=KEYS)
