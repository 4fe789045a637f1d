"""Markers of both kinds are found, and nothing else."""

from __future__ import annotations

import uuid

import pytest

from lakebed.concurrency.markers import Marker, delete_markers, list_markers, marker_path, write_marker
from lakebed.storage import Storage, open_storage

T = "20240101000000000"


@pytest.fixture
def storage() -> Storage:
    return open_storage(f"memory://{uuid.uuid4().hex}")


def test_markers_name_the_files_of_their_instant_alone(storage: Storage) -> None:
    write_marker(storage, T, "city=oslo/d=1", "f1_0-1-0_1.parquet", "CREATE")
    write_marker(storage, T, "", "f2_0-1-0_1.parquet", "MERGE")
    write_marker(storage, T, "", "f2_0-1-0_1.parquet", "MERGE")
    write_marker(storage, "20250101000000000", "", "other", "CREATE")
    assert storage.head(f".hoodie/.temp/{T}/city=oslo/d=1/f1_0-1-0_1.parquet.marker.CREATE") is not None
    found = list_markers(storage, T)
    assert found == [Marker("city=oslo/d=1/f1_0-1-0_1.parquet", "CREATE"), Marker("f2_0-1-0_1.parquet", "MERGE")]
    assert [(m.partition, m.file_name) for m in found] == [
        ("city=oslo/d=1", "f1_0-1-0_1.parquet"),
        ("", "f2_0-1-0_1.parquet"),
    ]


def test_markers_of_hudis_timeline_server_are_listed(storage: Storage) -> None:
    folder = f".hoodie/.temp/{T}"
    storage.write(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.write(f"{folder}/MARKERS0", b"p=1/a.parquet.marker.CREATE\nb.parquet.marker.MERGE\n")
    storage.write(f"{folder}/MARKERS19", "p=é/.f_1.log.1_0-1-0.marker.APPEND\np=1/cut.parquet.mark".encode())
    assert list_markers(storage, T) == [
        Marker("b.parquet", "MERGE"),
        Marker("p=1/a.parquet", "CREATE"),
        Marker("p=é/.f_1.log.1_0-1-0", "APPEND"),
    ]


def test_other_files_in_the_folder_are_no_markers(storage: Storage) -> None:
    storage.write(f".hoodie/.temp/{T}/keys/part-0.arrow", b"side file")
    storage.write(marker_path(T, "MARKERS0", "a", "CREATE"), b"")
    assert list_markers(storage, T) == [Marker("MARKERS0/a", "CREATE")]


def test_a_missing_folder_has_no_markers(storage: Storage) -> None:
    assert list_markers(storage, T) == []
    delete_markers(storage, T)
    write_marker(storage, T, "p", "a", "CREATE")
    delete_markers(storage, T)
    assert list_markers(storage, T) == []
