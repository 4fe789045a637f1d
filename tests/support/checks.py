"""What tests of checks compare: the files of a table before and after a write that was refused."""

from __future__ import annotations

from pathlib import Path

_LOCKS = (".hoodie/.locks/", ".hoodie/metadata/.hoodie/.locks/")


def files_below(uri: str) -> dict[str, bytes]:
    """The contents of all files of a table by path, without those of its locks."""
    folder = Path(uri)
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(_LOCKS)}


def rows_and_instants(uri: str) -> dict[str, bytes]:
    """The contents of the data files and of the instants that are no rollbacks: a write that began, and was rolled
    back, leaves the instant of its rollback and the records of it in the metadata table."""
    return {
        name: data
        for name, data in files_below(uri).items()
        if not name.startswith(".hoodie/") or (name.startswith(".hoodie/timeline/") and ".rollback" not in name)
    }
