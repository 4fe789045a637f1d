"""`lakebed list-tables` and `lakebed drop`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import InvalidOption, TableNotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("shop/orders", "shop/deep/er/items", "people"):
        lakebed.create(str(tmp_path / name), {"id": [1], "city": ["oslo"]}, key="id", partition_by="city")
    lakebed.open(str(tmp_path / "people")).upsert({"id": [1], "city": ["oslo"]})
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "broken" / ".hoodie").mkdir(parents=True)
    (tmp_path / "broken" / ".hoodie" / "hoodie.properties").write_text("hoodie.table.version=99\n")
    (tmp_path / "no_table" / ".hoodie").mkdir(parents=True)
    return tmp_path


def test_tables_of_a_folder_are_listed_down_to_a_depth(folder: Path) -> None:
    def names(depth: int) -> list[str]:
        return [uri.removeprefix(f"{folder}/") for uri in lakebed.list_tables(str(folder), depth=depth)]

    assert names(0) == []
    assert names(1) == ["broken", "people"]
    assert names(2) == ["broken", "people", "shop/orders"]
    assert names(3) == names(2)
    assert names(4) == ["broken", "people", "shop/deep/er/items", "shop/orders"]
    assert lakebed.list_tables(str(folder / "people"), depth=0) == [str(folder / "people")]
    assert lakebed.list_tables(str(folder / "nowhere")) == []
    with pytest.raises(InvalidOption, match="0 or more as depth"):
        lakebed.list_tables(str(folder), depth=-1)


def test_the_list_shows_each_table_and_why_one_does_not_open(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert invoke(["list-tables", str(folder), "-o", "json"]) == 0
    broken, people, orders = json.loads(capsys.readouterr().out)
    last = lakebed.open(str(folder / "people")).timeline.last
    assert last is not None
    assert "does not name the table" in broken["note"]
    assert (people["version"], people["type"], people["key"], people["partitions"]) == (
        *(9, "COPY_ON_WRITE"),
        *(["id"], ["city"]),
    )
    assert people["newest_instant"] == last.time
    assert (orders["location"], orders["newest_instant"]) == (str(folder / "shop/orders"), None)


def test_drop_deletes_only_after_a_yes_and_names_what_stays(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    uri = str(folder / "people")
    (folder / "people" / "notes.txt").write_text("mine")
    assert invoke(["drop", uri]) == 2
    assert "--yes" in capsys.readouterr().err
    assert invoke(["drop", uri, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would drop {uri}\n1 other file in the folder:\n  notes.txt\n"
    assert lakebed.open(uri).count() == 1
    assert invoke(["drop", uri, "--yes", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"location": uri, "dropped": True, "left": ["notes.txt"]}
    assert not lakebed.list_tables(uri, depth=0)
    assert (folder / "people" / "notes.txt").read_text() == "mine"
    assert invoke(["drop", uri, "--yes"]) == TableNotFound.exit_code
    assert invoke(["drop", uri, "--yes", "--missing-ok", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["dropped"] is False


def test_clone_makes_a_table_without_a_copy_or_with_one(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    uri = str(folder / "people")
    for target, words in (("trial", []), ("copy", ["--deep"])):
        assert invoke(["clone", uri, str(folder / target), *words, "-o", "json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["rows"], facts["table"]) == (1, target)
        assert lakebed.open(str(folder / target)).scan().to_arrow().to_pylist() == [{"id": 1, "city": "oslo"}]
    assert [saved.name for saved in lakebed.open(uri).savepoints] == [f"clone file://{folder / 'trial'}"]
    assert invoke(["clone", uri, str(folder / "trial")]) == 4
    assert "there is a table at" in capsys.readouterr().err
