"""The storage contract on a real HDFS."""

from __future__ import annotations

import uuid
from collections.abc import Generator

import pytest

from lakebed.storage import Storage, open_storage

from ..unit.storage.test_storage_contract import TestStorageContract, paths
from .hdfs_cluster import Hdfs
from .service import ServiceError

__all__ = ["TestStorageContract"]


@pytest.fixture(scope="module")
def hdfs() -> Generator[str]:
    pytest.importorskip("hdfs_native", reason="needs the package hdfs-native")
    try:
        server = Hdfs().start()
    except ServiceError as error:
        pytest.skip(str(error))
    yield server.info["fs"]
    server.stop()


@pytest.fixture
def storage(hdfs: str) -> Storage:
    return open_storage(f"{hdfs}/{uuid.uuid4().hex}/table")


def test_a_torn_upload_is_removed_with_its_file(storage: Storage) -> None:
    upload = storage.create("p/data.parquet")
    upload.write(b"half")
    leave = upload.leave  # type: ignore[attr-defined]
    leave()
    assert paths(storage) == ["p/.data.parquet.tmp"]
    assert storage.delete("p/data.parquet") is False
    assert paths(storage) == []


def test_settings_are_hadoop_names(hdfs: str) -> None:
    storage = open_storage(f"{hdfs}/settings", {"spark.hadoop.dfs.replication": "1"})
    storage.write("x", b"1")
    assert storage.url("x") == f"{hdfs}/settings/x"
