"""Names of base files, log files and file groups: parsed as Hudi's readers do, and made. Paths that markers and
plans name are checked before they are deleted.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection, Iterator

from lakebed.model import HOODIE, BaseFile, CommitMetadata, LogFile

_NO_NAMES = frozenset(("", ".", ".."))

_BASE_FILE = re.compile(r"([a-zA-Z0-9-]+)_([a-zA-Z0-9-]+)_([0-9]+)\.([a-zA-Z0-9]+)")
BASE_EXTENSIONS = (".parquet", ".orc", ".lance")
"""How the names of base files end, by their formats; `.hfile` is of tables that are not read."""

CHANGE_LOG_SUFFIX = ".cdc"
_LOG_FILE = re.compile(r"\.([^._]+)_([^.]*)\.(?:log|archive)\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?")
BUCKET_ID = "[0-9]{8}(?:-|$)"
"""How the file id of a bucket starts (a regular expression)."""

_BUCKET = re.compile(BUCKET_ID)
_NO_TOKEN = "1-0-1"
_EXACT_TOKEN = re.compile(r"\d+-0\d+-\d+")


def base_extension(base_format: str) -> str:
    """How the names of base files of a format end.

    >>> base_extension("LANCE")
    '.lance'
    """
    return f".{base_format.lower()}"


def base_file_name(file_id: str, write_token: str, instant: str, extension: str = ".parquet") -> str:
    """Name of the base file that `instant` (requested time) writes for a file group.

    >>> base_file_name("00000003-7bb4-4bb3-bb31-691a40023d81-0", "0-12-7", "20240102030405006")
    '00000003-7bb4-4bb3-bb31-691a40023d81-0_0-12-7_20240102030405006.parquet'
    """
    return f"{file_id}_{write_token}_{instant}{extension}"


def exact_token(write_token: str) -> str:
    """The write token of a base file in whose Parquet a column chunk that holds NaN has no min and max.

    Its middle number has a zero ahead, which no other writer gives it: so a reader knows by the name, without
    opening the file. Base files of Arrow's writer alone have min and max of the other values there.

    >>> exact_token("3-12-7")
    '3-012-7'
    """
    first, _, tail = write_token.partition("-")
    return f"{first}-0{tail}"


def has_exact_ranges(write_token: str) -> bool:
    """Whether the ranges in a base file are exact, which a write token made by `exact_token` shows.

    >>> has_exact_ranges("3-00-7"), has_exact_ranges("3-0-7")
    (True, False)
    """
    return _EXACT_TOKEN.fullmatch(write_token) is not None


def parse_base_file(partition: str, name: str, size: int) -> BaseFile | None:
    """The base file that a name in a partition folder means, or None if the name is not one of Hudi's.

    >>> parse_base_file("", "a-0_1-2-3_20240102030405006.parquet", 7).instant
    '20240102030405006'
    """
    match = _BASE_FILE.fullmatch(name)
    if match is None:
        return None
    file_id, token, instant, _ = match.groups()
    return BaseFile(partition=partition, file_id=file_id, write_token=token, instant=instant, name=name, size=size)


def log_file_name(file_id: str, instant: str, version: int, write_token: str, *, cdc: bool = False) -> str:
    """Name of a log file; `instant` is the delta commit's on version 8 and later, the base file's on version
    6.

    >>> log_file_name("a-0", "20240102030405006", 1, "0-1-2")
    '.a-0_20240102030405006.log.1_0-1-2'
    """
    return f".{file_id}_{instant}.log.{version}_{write_token}{CHANGE_LOG_SUFFIX if cdc else ''}"


def parse_log_file(partition: str, name: str, size: int) -> LogFile | None:
    """The log file that a name in a partition folder means, or None. A name without write token gets Hudi's
    `1-0-1`.

    >>> parse_log_file("p", ".a-0_20240102030405006.log.2_0-1-2.cdc", 9).is_cdc
    True
    """
    match = _LOG_FILE.fullmatch(name)
    if match is None:
        return None
    file_id, instant, version, token, cdc = match.groups()
    return LogFile(
        partition=partition,
        file_id=file_id,
        instant=instant,
        version=int(version),
        write_token=token or _NO_TOKEN,
        name=name,
        size=size,
        is_cdc=cdc is not None,
    )


def new_file_id(instant: str, partition: str, group: int, *, bucket: int | None = None, n: int = 0) -> str:
    """The id of a new file group: equal for every attempt of a task, different for every (instant, partition, group).

    A bucket number replaces the first 8 characters, as Hudi's bucket index wants it. Without one the id
    never starts with 8 digits, so that it is not taken for a bucket's. `n` counts the files one task opens
    for a group.

    >>> new_file_id("20240102030405006", "p", 0, bucket=3)[:9]
    '00000003-'
    """
    digest = hashlib.md5(f"{instant}\0{partition}\0{group}".encode(), usedforsecurity=False).digest()
    text = str(uuid.UUID(bytes=digest, version=4))
    if bucket is not None:
        text = f"{bucket:08d}{text[8:]}"
    elif _BUCKET.match(text):
        text = f"{'abcdef'[int(text[0]) % 6]}{text[1:]}"
    return f"{text}-{n}"


def fixed_file_id(bucket: int, n: int = 0) -> str:
    """The id of a bucket's file group that several writers may begin at once, as Hudi's non-blocking writers name it;
    `n` is the number of file groups of the bucket that were replaced.

    >>> fixed_file_id(3)
    '00000003-0000-0000-0000-000000000000-0'
    """
    return f"{bucket:08d}-0000-0000-0000-000000000000-{n}"


def bucket_of_file_id(file_id: str) -> int | None:
    """The bucket number in a file id that starts with 8 digits; None for another id. An id may also start with 8 digits
    by chance: only the keys show whether it is a bucket's.

    >>> bucket_of_file_id("00000012-9067-4705-9038-7b04d22d7015")
    12
    """
    return int(file_id[:8]) if _BUCKET.match(file_id) else None


def is_data_path(path: str) -> bool:
    """Whether a path that a file of the table names is the path of a file in a partition folder.

    >>> is_data_path("city=oslo/f_0-1-0_1.parquet"), is_data_path("../f"), is_data_path(".hoodie/hoodie.properties")
    (True, False, False)
    """
    parts = path.split("/")
    return parts[0] != HOODIE and _NO_NAMES.isdisjoint(parts) and "\0" not in path


def is_written_by(path: str, instants: Collection[str]) -> bool:
    """Whether the path is that of a base or log file whose name has one of these instants.

    >>> is_written_by("p/f_0-1-0_20240101000000000.parquet", ["20240101000000000"])
    True
    """
    if not is_data_path(path):
        return False
    partition, _, name = path.rpartition("/")
    file = parse_base_file(partition, name, 0) or parse_log_file(partition, name, 0)
    return file is not None and file.instant in instants


def written_files(metadata: CommitMetadata) -> Iterator[BaseFile | LogFile | None]:
    """Yields the base file or log file that each write stat of a commit names; None for a stat that names no such file,
    such as that of a delete that emptied a base file."""
    for partition, stats in metadata.stats.items():
        for stat in stats:
            name = stat.path.rpartition("/")[2]
            of_log = parse_log_file(partition, name, stat.file_size)
            yield of_log or parse_base_file(partition, name, stat.file_size)
