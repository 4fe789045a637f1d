"""Storage: list, read, write, put-if-absent and delete, over local disks, object stores, HDFS and memory."""

from __future__ import annotations

from lakebed.storage.base import FileInfo, Storage, StorageSpec, Upload, Versioned
from lakebed.storage.opening import open_storage, open_storage_spec

__all__ = ["FileInfo", "Storage", "StorageSpec", "Upload", "Versioned", "open_storage", "open_storage_spec"]
