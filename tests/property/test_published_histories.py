"""Random histories of tables that are published: other readers give the rows of the table after each operation, and the
rows of then in each version."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.published import READERS, PublishedHistory, check_published, quiet, sorted_rows
from support.sampling import whole

STEPS = 200
quiet_readers = pytest.fixture(autouse=True)(quiet)
CASES = [
    ("delta", "cow", "simple"),
    ("iceberg", "cow", "bucket"),
    ("delta", "mor", "bucket"),
    ("iceberg", "mor", "simple"),
]


def run(uri: str, case: tuple[str, str, str], seed: int, steps: int) -> None:
    form, kind, index = case
    history = PublishedHistory(uri, seed, kind, index)
    done: list[str] = []
    for _ in range(steps):
        done.append(history.step())
        lags = history.random.random() < 0.3
        if lags:
            continue
        try:
            history.note(history.table.catalogs.publish(form))
            check_published(history.table, form)
        except BaseException as error:
            error.add_note(f"{case}, seed {seed}: {done}")
            raise
    history.note(history.table.catalogs.publish(form))
    read = READERS[form][{"delta": "deltalake", "iceberg": "pyiceberg"}[form]]
    for version, rows in history.readable_versions().items():
        assert sorted_rows(read(uri, version)) == rows, (version, done)


@pytest.mark.rest
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_other_readers_give_the_rows_of_the_table_after_each_operation(
    case: tuple[str, str, str], tmp_path: Path
) -> None:
    run(str(tmp_path / "t"), case, seed=len(case[0]) + len(case[2]), steps=STEPS if whole("LAKEBED_HISTORIES") else 8)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_other_readers_give_the_rows_of_the_table_over_two_hundred_operations(
    case: tuple[str, str, str], tmp_path: Path
) -> None:
    run(str(tmp_path / "t"), case, seed=37, steps=STEPS)
