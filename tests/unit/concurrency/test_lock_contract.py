"""The suite of all locks over those that need no service, and over two taken as one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakebed.model import HDFS_LOCK_FILE, LOCK_FILE
from support.lock_contract import LockContract


class FileContract(LockContract):
    path = LOCK_FILE

    @pytest.fixture(autouse=True)
    def _where(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "table"

    def steal(self) -> None:
        file = self.folder / self.path
        body = json.loads(file.read_text())
        file.write_text(json.dumps(body | {"owner": "someone-else", "expired": True}))

    def unanswered(self) -> None:
        return None


class TestStorageLock(FileContract):
    """Of the storage itself: `table_lock.json`."""

    def code(self) -> str:
        return f"default_lock(open_storage({str(self.folder)!r}))"


class TestFileSystemLock(FileContract):
    """Hudi's file-system lock, which is there or not."""

    path = HDFS_LOCK_FILE

    def code(self) -> str:
        return f"FileLock(open_storage({str(self.folder)!r}), HDFS_LOCK_FILE, release_deletes=True)"

    @pytest.mark.rest
    def test_processes_that_count_lose_no_count(self, tmp_path: Path) -> None:
        super().test_processes_that_count_lose_no_count(tmp_path)


class TestNestedLock(FileContract):
    """Two as one; lost with either of them."""

    def code(self) -> str:
        storage = f"open_storage({str(self.folder)!r})"
        outer = f"FileLock({storage}, HDFS_LOCK_FILE, release_deletes=True)"
        return f"NestedLock({outer}, default_lock({storage}), 60.0)"

    @pytest.mark.rest
    def test_processes_that_count_lose_no_count(self, tmp_path: Path) -> None:
        super().test_processes_that_count_lose_no_count(tmp_path)
