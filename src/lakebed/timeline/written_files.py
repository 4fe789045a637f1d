"""Which files a table may be asked to delete: paths that markers and plans name are checked before they are used."""

from __future__ import annotations

from collections.abc import Collection

from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import HOODIE


def is_data_path(path: str) -> bool:
    """Whether a path that was found in a file of the table is that of a file in a partition folder.

    >>> is_data_path("city=oslo/f_0-1-0_1.parquet"), is_data_path("../f"), is_data_path(".hoodie/hoodie.properties")
    (True, False, False)
    """
    parts = path.split("/")
    return parts[0] != HOODIE and not any(part in ("", ".", "..") or "\0" in part for part in parts)


def is_written_by(path: str, instants: Collection[str]) -> bool:
    """Whether the path is that of a base or log file whose name carries one of these instants.

    >>> is_written_by("p/f_0-1-0_20240101000000000.parquet", ["20240101000000000"])
    True
    """
    if not is_data_path(path):
        return False
    partition, _, name = path.rpartition("/")
    file = parse_base_file(partition, name, 0) or parse_log_file(partition, name, 0)
    return file is not None and file.instant in instants
