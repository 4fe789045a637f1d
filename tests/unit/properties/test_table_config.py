"""Opening, creating and updating a table's settings; every update survives a crash at every step."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from lakebed.errors import (
    CommitConflict,
    CorruptFile,
    LakebedError,
    StorageError,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lakebed.format.text import parse_properties
from lakebed.properties import file
from lakebed.properties.file import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    create_table,
    load_table_config,
    update_table_config,
)
from lakebed.properties.new_table import new_table_properties
from lakebed.storage.base import Durable
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage, FaultPlan, FaultyStorage, Killed
from lakebed.timeline.timeline import load_timeline
from support.golden_tables import golden_folder
from support.locks import held


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    name = uuid.uuid4().hex
    yield MemoryStorage(name)
    MemoryStorage.drop(name)


PROPS = new_table_properties(name="t", key_fields=["id"], extra={"unknown.key": "kept: = #"})


def lines(storage: MemoryStorage) -> list[bytes]:
    return storage.read(PROPERTIES_PATH).splitlines(keepends=True)


def put_line(storage: MemoryStorage, key: str, value: str | None) -> None:
    kept = [line for line in lines(storage) if not line.startswith(key.encode() + b"=")]
    storage.write(PROPERTIES_PATH, b"".join(kept) + (f"{key}={value}\n".encode() if value is not None else b""))


def test_a_created_table_opens(storage: MemoryStorage) -> None:
    created = create_table(storage, PROPS)
    assert load_table_config(storage) == created
    assert dict(created.properties) == PROPS
    assert lines(storage)[0].startswith(b"#Properties saved on 2")
    assert created.timeline_path == ".hoodie/timeline"
    assert created.archive_folder == ".hoodie/timeline/history"
    assert load_timeline(storage, created).instants == ()


def test_version_6_keeps_its_timeline_in_the_hoodie_folder(storage: MemoryStorage) -> None:
    config = create_table(storage, new_table_properties(name="t", version=6))
    assert (config.timeline_path, config.archive_folder) == (".hoodie", ".hoodie/history")


def test_opening_a_table_is_one_read_and_one_listing(storage: MemoryStorage) -> None:
    config = create_table(storage, PROPS)
    storage.write(f"{config.timeline_path}/20240101000000000.commit.requested", b"")
    counting = CountingStorage(storage)
    load_timeline(counting, load_table_config(counting))
    assert {verb: n for verb, n in counting.counts.items() if n} == {"read": 1, "list": 1}


def test_an_empty_timeline_is_believed_after_the_settings_were_read_again(storage: MemoryStorage) -> None:
    config = create_table(storage, PROPS)
    counting = CountingStorage(storage)
    assert load_timeline(counting, config).instants == ()
    assert {verb: n for verb, n in counting.counts.items() if n} == {"read": 1, "list": 1}
    storage.delete(PROPERTIES_PATH)
    with pytest.raises(TableNotFound):
        load_timeline(storage, config)


def test_creating_twice_is_refused(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)
    before = storage.read(PROPERTIES_PATH)
    with pytest.raises(TableExists, match="already"):
        create_table(storage, new_table_properties(name="other"))
    assert storage.read(PROPERTIES_PATH) == before


@pytest.mark.parametrize("mode", ["doubtful", "lost"])
def test_creation_in_doubt_is_settled(storage: MemoryStorage, mode: str) -> None:
    plan = FaultPlan(lambda mutation: mutation.path == PROPERTIES_PATH, mode)  # type: ignore[arg-type]
    create_table(FaultyStorage(storage, plan), PROPS)
    assert dict(load_table_config(storage).properties) == PROPS


def test_a_folder_without_properties_is_no_table(storage: MemoryStorage) -> None:
    storage.write("data.parquet", b"x")
    with pytest.raises(TableNotFound, match=r"hoodie\.properties is missing"):
        load_table_config(storage)


@pytest.mark.parametrize("version", ["0", "5", "7", "10", "baz"])
def test_other_versions_are_refused_by_name(storage: MemoryStorage, version: str) -> None:
    create_table(storage, PROPS)
    put_line(storage, "hoodie.table.version", version)
    with pytest.raises(UnsupportedFeature, match=f"table version {version}") as caught:
        load_table_config(storage)
    assert "with Hudi" in caught.value.hint


def test_without_layout_version_there_is_no_table(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)
    put_line(storage, "hoodie.timeline.layout.version", None)
    with pytest.raises(TableNotFound, match=r"hoodie\.timeline\.layout\.version"):
        load_table_config(storage)


def test_a_half_upgraded_table_is_refused(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)
    put_line(storage, "hoodie.timeline.layout.version", "1")
    with pytest.raises(CorruptFile, match="version 9 but timeline layout 1"):
        load_table_config(storage)


def test_a_missing_checksum_and_version_are_accepted(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)
    put_line(storage, "hoodie.table.checksum", None)
    put_line(storage, "hoodie.table.version", None)
    assert load_table_config(storage).version == 9


@pytest.mark.parametrize("body", [b"", b"\x00\x01\x02", b"hoodie.table.name=t\nhoodie.table.checksum=1\n"])
def test_unreadable_properties_come_from_the_backup(storage: MemoryStorage, body: bytes) -> None:
    config = create_table(storage, PROPS)
    good = storage.read(PROPERTIES_PATH)
    storage.write(PROPERTIES_PATH, body)
    with pytest.raises(CorruptFile, match=r"hoodie\.properties cannot be used"):
        load_table_config(storage)
    storage.write(BACKUP_PATH, good)
    assert load_table_config(storage) == config
    assert storage.read(PROPERTIES_PATH) == body, "reading changes nothing"
    updated = update_table_config(storage, {"a": "1"}, held)
    assert dict(updated.properties) == PROPS | {"a": "1"}
    assert storage.head(BACKUP_PATH) is None


def test_a_missing_file_comes_from_the_backup(storage: MemoryStorage) -> None:
    config = create_table(storage, PROPS)
    storage.write(BACKUP_PATH, storage.read(PROPERTIES_PATH))
    storage.delete(PROPERTIES_PATH)
    assert load_table_config(storage) == config
    with pytest.raises(TableExists):
        create_table(storage, PROPS)


def test_updates_keep_unknown_keys(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)
    changed = update_table_config(storage, {"lakebed.index.type": "bucket", "hoodie.table.format": None}, held)
    expected = {k: v for k, v in PROPS.items() if k != "hoodie.table.format"} | {"lakebed.index.type": "bucket"}
    assert dict(changed.properties) == expected == parse_properties(storage.read(PROPERTIES_PATH))
    assert lines(storage)[0].startswith(b"#Updated at 2")
    assert storage.head(BACKUP_PATH) is None


def test_a_renamed_table_gets_its_checksum(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)
    update_table_config(storage, {"hoodie.database.name": "db"}, held)
    assert load_table_config(storage).database == "db"


def test_an_update_that_changes_nothing_writes_nothing(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)
    faulty = FaultyStorage(storage)
    update_table_config(faulty, {"hoodie.table.format": "native", "no.such.key": None}, held)
    assert faulty.mutations == []


def test_an_update_to_an_unknown_version_is_refused_before_writing(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)
    faulty = FaultyStorage(storage)
    with pytest.raises(UnsupportedFeature):
        update_table_config(faulty, {"hoodie.table.version": "10"}, held)
    assert faulty.mutations == []


def test_two_updates_at_once_conflict(storage: MemoryStorage) -> None:
    create_table(storage, PROPS)

    class Meanwhile(FaultyStorage):
        """Another writer makes its backup between our reading and our backup."""

        def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
            storage.write(BACKUP_PATH, storage.read(PROPERTIES_PATH))
            return super().put_if_absent(path, data, durable=durable)

    with pytest.raises(CommitConflict, match="another writer is updating"):
        update_table_config(Meanwhile(storage), {"a": "1"}, held)
    assert dict(load_table_config(storage).properties) == PROPS


@pytest.mark.parametrize("mode", ["fail", "kill", "torn", "unacknowledged", "doubtful", "lost"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_settings(storage: MemoryStorage, step: int, mode: str) -> None:
    create_table(storage, PROPS)
    new = PROPS | {"a": "1"}
    faulty = FaultyStorage(storage, FaultPlan(step, mode))  # type: ignore[arg-type]
    with contextlib.suppress(Killed, StorageError):
        update_table_config(faulty, {"a": "1"}, held)
    assert faulty.crash.fired
    assert dict(load_table_config(storage).properties) in (PROPS, new)
    after = update_table_config(storage, {"b": "2"}, held)
    assert dict(after.properties) in (PROPS | {"b": "2"}, new | {"b": "2"})
    assert storage.head(BACKUP_PATH) is None


# The checksum of "valid" was not made for its database name.
@pytest.mark.parametrize(
    ("folder", "error"),
    [
        ("valid", CorruptFile),
        ("valid_minimum", None),
        ("no_create_schema", None),
        ("partial", None),
        ("invalid", CorruptFile),
    ],
)
def test_properties_of_hudi_rs(storage: MemoryStorage, folder: str, error: type[LakebedError] | None) -> None:
    path = golden_folder() / f"hudi-rs/core/table_props_{folder}/.hoodie/hoodie.properties"
    if not path.exists():
        pytest.skip("not in the subset")
    storage.write(PROPERTIES_PATH, path.read_bytes())
    if error is not None:
        with pytest.raises(error):
            load_table_config(storage)
        return
    config = load_table_config(storage)
    assert (config.version, config.table_type, config.timezone) == (6, "cow", "LOCAL")
    assert config.key_generator in ("SIMPLE", "NON_PARTITION")


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_file_that_was_cut_is_never_a_smaller_table(
    storage: MemoryStorage, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever byte: half of the settings may be those of a table without a key."""
    monkeypatch.setattr(file, "_READ_PAUSE_SECONDS", 0)
    properties = new_table_properties(
        name="t", version=version, key_fields=["id"], partition_fields=["city"], ordering_fields=["ts"]
    )
    create_table(storage, properties)
    whole = storage.read(PROPERTIES_PATH)
    for size in range(len(whole)):
        # version 6 is old enough for files without checksum
        if version == 6 and whole[:size].endswith(b"\n") and b"layout" in whole[:size]:
            continue
        storage.write(PROPERTIES_PATH, whole[:size])
        with pytest.raises(CorruptFile, match=r"hoodie\.properties"):
            load_table_config(storage)
    storage.write(PROPERTIES_PATH, whole[: len(whole) // 2])
    storage.write(BACKUP_PATH, whole)
    assert load_table_config(storage).key_fields == ("id",)
