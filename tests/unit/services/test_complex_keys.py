"""Complex keys of one field: stored as `id:1` or as `1`, by release of Hudi; a table keeps the form that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.key_generators import NAMED, PLAIN
from lakebed.slices.snapshot import Snapshot
from support.golden_tables import golden

PLAIN_KEYS = {"hoodie.write.complex.keygen.new.encoding": "true"}
KEEPS = {"hoodie.write.complex.keygen.validation.enable": "false"}
SCHEMA = pa.schema([("id", pa.int32()), ("a", pa.string()), ("b", pa.string()), ("v", pa.string()), ("ts", pa.int64())])


def rows(ids: list[int], v: str, ts: int = 1) -> pa.Table:
    columns = [ids, ["x" if i % 2 else "y" for i in ids], ["p"] * len(ids), [f"{v}{i}" for i in ids], [ts] * len(ids)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True))).cast(SCHEMA)


def new_table(folder: Path, version: int = 9, type: Literal["cow", "mor"] = "cow", **more: Any) -> lakebed.Table:
    return lakebed.create(
        str(folder), SCHEMA, key="id", partition_by=["a", "b"], ordering="ts", type=type, table_version=version, **more
    )


def stored(t: lakebed.Table) -> list[tuple[str, int, str]]:
    found = t.scan(meta=True).to_arrow().to_pylist()
    return sorted((row["_hoodie_record_key"], row["id"], row["v"]) for row in found)


def forget_the_form(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Writes go on with this form, as those of releases that took no look at stored keys."""
    monkeypatch.setattr(Snapshot, "key_form", property(lambda _: form))


@pytest.mark.parametrize("type", ["cow", "mor"])
def test_a_table_of_version_9_with_plain_keys_is_followed(type: Literal["cow", "mor"], tmp_path: Path) -> None:
    t = new_table(tmp_path / "t", 8, type)
    t.upsert(rows([1, 2, 3], "a"), options=PLAIN_KEYS)
    t.maintenance.upgrade(options=KEEPS)
    t = lakebed.open(t.uri)
    t.upsert(rows([2, 4], "b"), options=PLAIN_KEYS)
    t.delete(rows([3], ""))
    assert stored(t) == [("1", 1, "a1"), ("2", 2, "b2"), ("4", 4, "b4")]
    assert t.get([2]).to_pylist()[0]["v"] == "b2"
    assert t.scan(where="id = 4").to_arrow()["v"].to_pylist() == ["b4"]
    assert t.get([3]).num_rows == 0
    assert t.indexes.verify().ok
    with pytest.raises(InvalidOption, match="stored as '1'"):
        t.upsert(rows([5], "c"), options={"hoodie.write.complex.keygen.new.encoding": "false"})


def test_a_table_of_hudi_with_plain_keys_is_followed_without_a_note(tmp_path: Path) -> None:
    t = lakebed.open(str(golden("flinklike_v9_mor_complexraw").unpack(tmp_path)))
    before = t.scan().to_arrow().num_rows
    row = t.scan(where="id = 2").to_arrow()
    assert row.num_rows == 1
    assert t.get([2]).num_rows == 1
    changed = row.set_column(row.schema.get_field_index("name"), "name", pa.array(["new"]))
    t.upsert(changed)
    assert t.scan(where="id = 2").to_arrow()["name"].to_pylist() == ["new"]
    assert t.scan().to_arrow().num_rows == before
    t.delete(row.select(["id", "city", "g"]))
    assert t.scan().to_arrow().num_rows == before - 1
    assert any("'id:1'" in str(finding) for finding in t.maintenance.doctor(read_only=True).findings)


def test_named_keys_stay_named(tmp_path: Path) -> None:
    for version in (6, 8, 9):
        t = new_table(tmp_path / f"{version}", version=version)
        t.upsert(rows([1], "a"))
        t.upsert(rows([1, 2], "b"))
        assert stored(t) == [("id:1", 1, "b1"), ("id:2", 2, "b2")]
        assert not any(
            "stored as" in str(finding) for finding in t.maintenance.doctor(read_only=True, verify=True).findings
        )
        if version < 9:
            t.maintenance.upgrade()
            assert t.get([1]).to_pylist()[0]["v"] == "b1"


@pytest.mark.parametrize("version", [6, 8])
def test_an_upgrade_of_plain_keys_is_refused_unless_they_are_to_be_kept(version: int, tmp_path: Path) -> None:
    t = new_table(tmp_path / "t", version=version)
    t.upsert(rows([1, 2, 3], "a"), options=PLAIN_KEYS)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedFeature, match="stored as '1', not as 'id:1'") as error:
            t.maintenance.upgrade(dry_run=dry_run)
    assert "repair" in error.value.hint
    assert f"version {version}" in repr(lakebed.open(t.uri))
    t.maintenance.upgrade(options=KEEPS)
    t = lakebed.open(t.uri)
    assert "version 9" in repr(t)
    t.upsert(rows([2, 4], "b"))
    t.delete(rows([3], ""))
    assert stored(t) == [("1", 1, "a1"), ("2", 2, "b2"), ("4", 4, "b4")]
    assert t.get([1]).to_pylist()[0]["v"] == "a1"
    assert t.indexes.verify().ok


@pytest.mark.parametrize(
    ("type", "index"), [("cow", "simple"), ("mor", "bucket"), ("cow", "record"), ("mor", "simple")]
)
def test_doctor_names_keys_in_both_forms_and_repair_gives_them_one(
    type: Literal["cow", "mor"], index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"buckets": 1} if index == "bucket" else {}
    t = new_table(tmp_path / "t", type=type, index=index, **more)
    with monkeypatch.context() as patch:
        forget_the_form(patch, PLAIN)
        t.upsert(rows([1, 2, 3, 5, 7], "a", 5))
    with monkeypatch.context() as patch:
        forget_the_form(patch, NAMED)
        t = lakebed.open(t.uri)
        t.upsert(rows([2, 4], "b", 6))  # newer
        t.upsert(rows([3], "late", 4))  # of a key that was not found, with a lower ordering value
        t.upsert(rows([7], "same", 5))
    t = lakebed.open(t.uri)
    assert t.scan().to_arrow().num_rows == 9
    finding = next(
        f for f in t.maintenance.doctor(read_only=True, verify=True).findings if "stored as 'id:1'" in str(f)
    )
    assert "repair" in str(finding)
    dry = t.maintenance.repair(["keys"], dry_run=True)
    assert not dry["keys"].ok
    assert t.scan().to_arrow().num_rows == 9
    assert t.maintenance.repair(["keys"])["keys"].ok
    t = lakebed.open(t.uri)
    expected = [
        ("id:1", 1, "a1"),
        ("id:2", 2, "b2"),
        ("id:3", 3, "a3"),
        ("id:4", 4, "b4"),
        ("id:5", 5, "a5"),
        ("id:7", 7, "same7"),
    ]
    assert stored(t) == expected
    assert t.maintenance.repair(["keys"])["keys"].found == ()
    assert [t.get([i]).num_rows for i in (1, 2, 3, 4, 5, 6)] == [1, 1, 1, 1, 1, 0]
    assert t.indexes.verify().ok
    assert not any("stored as" in str(f) for f in t.maintenance.doctor(read_only=True, verify=True).findings)


def test_a_repair_stores_plain_keys_with_the_field_on_request_and_then_they_can_be_upgraded(tmp_path: Path) -> None:
    for version in (8, 6):
        t = new_table(tmp_path / f"{version}", version, "mor" if version == 8 else "cow")
        t.upsert(rows([1, 2, 3], "a"), options=PLAIN_KEYS)
        t.upsert(rows([3, 4], "b"))
        assert t.maintenance.repair(["keys"])["keys"].found == ()
        changed = t.maintenance.repair(["keys"], options={"hoodie.write.complex.keygen.new.encoding": "false"})
        assert sorted(changed["keys"].found) == ["1", "2", "3", "4"]
        t = lakebed.open(t.uri)
        t.maintenance.upgrade()
        t.upsert(rows([1, 5], "c"))
        assert stored(t) == [(f"id:{i}", i, v) for i, v in ((1, "c1"), (2, "a2"), (3, "b3"), (4, "b4"), (5, "c5"))]
        assert t.get([2]).to_pylist()[0]["v"] == "a2"
        assert t.indexes.verify().ok


def test_a_new_table_of_version_9_has_named_keys_whatever_is_asked_for(tmp_path: Path) -> None:
    t = new_table(tmp_path / "t")
    t.upsert(rows([1], "a"), options=PLAIN_KEYS)
    assert stored(t) == [("id:1", 1, "a1")]


def test_an_upgrade_of_keys_in_both_forms_names_the_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    t = new_table(tmp_path / "t", version=8)
    t.upsert(rows([1], "a"))
    with monkeypatch.context() as patch:
        forget_the_form(patch, PLAIN)
        t = lakebed.open(t.uri)
        t.upsert(rows([1, 2], "b", 2))
    t = lakebed.open(t.uri)
    with pytest.raises(UnsupportedFeature) as error:
        t.maintenance.upgrade()
    assert "repair" in error.value.hint
    t.maintenance.repair(["keys"])
    assert stored(t) == [("1", 1, "b1"), ("2", 2, "b2")]
