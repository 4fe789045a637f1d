"""The storage contract on a real HDFS."""

from __future__ import annotations

import importlib.util
import threading
import uuid
from collections.abc import Generator

import pytest

from conftest import unavailable
from lakebed.concurrency.lock import default_lock
from lakebed.errors import LockTimeout
from lakebed.storage import Storage, open_storage
from lakebed.testing import FaultPlan, FaultyStorage, Killed
from support.processes import wait_for

from ..unit.storage import test_storage_contract as contract
from ..unit.storage.test_storage_contract import paths
from .hdfs_cluster import Hdfs
from .service import ServiceError


@pytest.fixture(scope="module")
def hdfs() -> Generator[str]:
    if importlib.util.find_spec("hdfs_native") is None:
        unavailable("needs the package hdfs-native")
    try:
        server = Hdfs().start()
    except ServiceError as error:
        unavailable(str(error))
    yield server.info["fs"]
    server.stop()


@pytest.fixture
def storage(hdfs: str) -> Storage:
    return open_storage(f"{hdfs}/{uuid.uuid4().hex}/table")


class TestStorageContract(contract.TestStorageContract):
    """Many changes of one file take seconds where HDFS renames files for them."""

    @pytest.mark.rest
    def test_put_if_match_of_any_size(self, storage: Storage) -> None:
        super().test_put_if_match_of_any_size(storage)

    @pytest.mark.rest
    def test_put_if_match_loses_no_update(self, storage: Storage) -> None:
        super().test_put_if_match_loses_no_update(storage)


def test_a_torn_upload_is_removed_with_its_file(storage: Storage) -> None:
    upload = storage.create("p/data.parquet")
    upload.write(b"half")
    leave = upload.leave  # type: ignore[attr-defined]
    leave()
    assert paths(storage) == ["p/.data.parquet.tmp"]
    assert storage.delete("p/data.parquet") is False
    assert paths(storage) == []


def test_hadoop_setting_names_are_taken(hdfs: str) -> None:
    storage = open_storage(f"{hdfs}/settings", {"spark.hadoop.dfs.replication": "1"})
    storage.write("x", b"1")
    assert storage.url("x") == f"{hdfs}/settings/x"


def test_the_table_lock_is_hudis_file(storage: Storage) -> None:
    storage.write("n", b"0")

    def add() -> None:
        for _ in range(3):
            with default_lock(storage, wait_seconds=120):
                assert storage.head(".hoodie/lock") is not None
                storage.write("n", str(int(storage.read("n")) + 1).encode())

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.read("n") == b"9"
    wait_for(lambda: storage.head(".hoodie/lock") is None)


def test_the_table_lock_is_taken_from_the_dead_only(storage: Storage) -> None:
    with default_lock(storage) as lock:
        assert lock.renew()
        with pytest.raises(LockTimeout), default_lock(storage, wait_seconds=0):
            pass
    faulty = FaultyStorage(storage, FaultPlan(2, "kill"))
    killed = default_lock(faulty)
    killed.acquire(0)
    with pytest.raises(Killed):
        killed.release()
    with default_lock(storage, wait_seconds=0) as lock:
        assert lock.lock_is_held()
