from __future__ import annotations

import re

import pytest

from lakebed.format.file_names import (
    base_file_name,
    bucket_of_file_id,
    log_file_name,
    new_file_id,
    parse_base_file,
    parse_log_file,
)

INSTANT = "20240102030405006"


def test_base_file_name_comes_apart_again():
    name = base_file_name("0b3c-7-0", "3-14-15", INSTANT)
    file = parse_base_file("city=x/day=1", name, 99)
    assert file is not None
    assert (file.file_id, file.write_token, file.instant, file.size) == ("0b3c-7-0", "3-14-15", INSTANT, 99)
    assert file.path == f"city=x/day=1/{name}"


@pytest.mark.parametrize(
    "name",
    [
        ".hoodie_partition_metadata",
        ".a-0_20240102030405006.log.1_0-1-2",
        "a-0_1-2-3_20240102030405006.parquet.crc",
        "a-0_1-2-3.parquet",
        "_SUCCESS",
        "part-00000.parquet",
        "",
    ],
)
def test_other_files_are_no_base_files(name: str):
    assert parse_base_file("", name, 1) is None


@pytest.mark.parametrize("cdc", [False, True])
def test_log_file_name_comes_apart_again(cdc: bool):
    name = log_file_name("a-0", INSTANT, 12, "0-1-2", cdc=cdc)
    file = parse_log_file("p", name, 5)
    assert file is not None
    assert (file.file_id, file.instant, file.version, file.write_token, file.is_cdc) == (
        "a-0",
        INSTANT,
        12,
        "0-1-2",
        cdc,
    )


def test_a_log_file_without_token_and_an_archive():
    log, archive = parse_log_file("", ".a-0_1.log.3", 0), parse_log_file("", ".commits_.archive.7_1-0-1", 0)
    assert log is not None
    assert (log.version, log.write_token) == (3, "1-0-1")
    assert archive is not None
    assert (archive.file_id, archive.instant, archive.version) == ("commits", "", 7)


@pytest.mark.parametrize("name", [".a-0_1.log.1_0-1-2.crc", "a-0_1.log.1_0-1-2", ".a-0_1.log.x_0-1-2", ".hoodie"])
def test_other_files_are_no_log_files(name: str):
    assert parse_log_file("", name, 0) is None


def test_file_ids_are_the_same_for_every_attempt_and_differ_between_groups():
    ids = {new_file_id(i, p, g) for i in ("1", "2") for p in ("", "p") for g in range(500)}
    assert len(ids) == 2000
    assert new_file_id("1", "p", 7) in ids
    uuid_and_number = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-0")
    assert all(uuid_and_number.fullmatch(i) for i in ids)
    assert all(bucket_of_file_id(i) is None for i in ids)


def test_a_buckets_file_id_starts_with_its_number():
    first, second = new_file_id(INSTANT, "p", 5, bucket=5), new_file_id(INSTANT, "p", 5, bucket=5, n=2)
    assert re.fullmatch(r"00000005-[0-9a-f]{4}-[0-9a-f-]+-0", first)
    assert second == first[:-1] + "2"
    assert bucket_of_file_id(first) == 5


@pytest.mark.parametrize(
    ("file_id", "bucket"),
    [
        ("00000000-9067-4705-9038-7b04d22d7015", 0),
        ("00000007-0000-0000-0000-000000000000-0", 7),
        ("1234567-9067", None),
        ("1234567a-9067-4705-9038-7b04d22d7015-0", None),
        ("123456789-9067", None),
    ],
)
def test_bucket_of_file_id(file_id: str, bucket: int | None):
    assert bucket_of_file_id(file_id) == bucket
