"""Disks that are full, or read-only, from some change of storage on: the write fails and says why, readers go on, and
the next write on a disk with room makes the table whole.

With any storage at some of its changes (`LAKEBED_CRASH=all`: at each), and once on a real small disk where one may
be mounted.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count, product
from pathlib import Path
from typing import Any, TypeVar

import pytest

import lakebed
from lakebed.errors import LakebedError, StorageError
from lakebed.storage.base import refused
from lakebed.storage.opening import wrapping
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Mutation
from support.crash_tables import NEXT, OPERATIONS, Model, copied, create, leftovers, prepared, put, rows, state
from support.sampling import CRASH, is_todays

T = TypeVar("T")
KINDS = (("bucket", 9), ("simple", 6), ("record", 8), ("mor-bucket", 9), ("mor-simple", 6))


class Disk(Crash):
    """From its `at`-th change on nothing more is written, and if it is read-only nothing is deleted either."""

    def __init__(self, at: int, *, read_only: bool) -> None:
        super().__init__(FaultPlan(at))
        self._read_only = read_only

    def mutate(self, mutation: Mutation, act: Callable[[], T], tear: Callable[[], None]) -> T:
        self.mutations.append(mutation)
        is_over = len(self.mutations) >= int(str(self.plan.at))
        if not is_over or (mutation.verb == "delete" and not self._read_only):
            return act()
        self._struck = self._struck or len(self.mutations)
        why = "read-only file system" if self._read_only else "no space left on device"
        raise refused(f"{mutation}: {why}", url=mutation.path)


@pytest.mark.parametrize(
    ("operation", "kind", "read_only"),
    [
        (operation, KINDS[at % len(KINDS)], read_only)
        for at, (operation, read_only) in enumerate(product(("upsert", "delete", "insert_overwrite"), (False, True)))
    ],
)
def test_a_write_on_a_disk_that_is_full_is_old_or_new(operation: str, kind: tuple[str, int], read_only: bool) -> None:
    files, old = prepared(*kind)
    for at in (n for n in count(1) if is_todays(n, 6, CRASH, operation, kind, read_only)):
        with copied("memory", files) as uri:
            disk = Disk(at, read_only=read_only)
            with wrapping(lambda inner, disk=disk: FaultyStorage(inner, crash=disk)):
                said = "space left, read-only"
                try:
                    OPERATIONS[operation].run(lakebed.open(uri))
                    allowed = OPERATIONS[operation].model(old)
                except LakebedError as error:
                    said = str(error)
                    allowed = old
            if not disk.fired:
                break
            try:
                assert ("read-only" if read_only else "space left") in said
                assert state(uri) == allowed
                NEXT.run(lakebed.open(uri))
                assert state(uri) == NEXT.model(allowed)
                assert leftovers(uri) == []
                assert lakebed.open(uri).indexes.verify().ok
            except BaseException as error:
                error.add_note(f"{operation} on {kind}, {disk}")
                raise
    assert len(disk.mutations) >= 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """A disk of half a megabyte; called with other options of `mount` it is mounted so."""
    if shutil.which("mount") is None:
        pytest.skip("there is no mount")

    def mount(options: str) -> subprocess.CompletedProcess[str]:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    made = mount("size=512k")
    if made.returncode:
        pytest.skip(f"mounting is not allowed: {made.stderr.strip()}")
    yield lambda options: mount(f"remount,{options}")
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_real_disk_that_is_full_and_one_that_is_read_only(disk: Callable[[str], Any], tmp_path: Path) -> None:
    uri = f"{tmp_path}/t"
    create(uri, "bucket", 9)
    model: Model = {}

    def fill() -> None:
        for n in range(200):
            given = (n, f"c{n % 2}", f"v{n}" * 100, n)
            lakebed.open(uri).upsert(rows(given))
            model.update(put({}, given))

    with pytest.raises(StorageError, match="No space left"):
        fill()
    assert len(model) > 2
    assert state(uri) == model
    assert disk("size=4m").returncode == 0
    lakebed.open(uri).upsert(rows((500, "c0", "room", 1)))
    model = put(model, (500, "c0", "room", 1))
    assert state(uri) == model
    assert leftovers(uri) == []

    assert disk("ro").returncode == 0
    with pytest.raises(StorageError, match="Read-only file system"):
        lakebed.open(uri).upsert(rows((501, "c0", "no", 1)))
    assert state(uri) == model
    assert disk("rw").returncode == 0
    lakebed.open(uri).upsert(rows((502, "c1", "yes", 1)))
    assert state(uri) == put(model, (502, "c1", "yes", 1))
    assert leftovers(uri) == []
    assert lakebed.open(uri).indexes.verify().ok
