"""Links inside a local table: none is followed when folders are listed, written to or deleted from, since what lies
behind it is not the table's."""

from __future__ import annotations

import os
import stat

from lakebed.storage.failure import refused


def check_not_linked(root: str, folder: str) -> None:
    """Raise where `folder` (relative to the table's own) or one above it is a link."""
    path = root
    for part in folder.split("/") if folder else ():
        path = f"{path}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                raise is_link(path)
        except (FileNotFoundError, NotADirectoryError):
            return


def is_link(path: str) -> Exception:
    """What is said of a folder that is a link."""
    error = refused(
        f"{path} is a link to another folder, and lakebed follows no links inside a table",
        "move what lies behind it into the table, or mount it there",
        url=f"file://{path}",
    )
    error.context["link"] = True
    return error
