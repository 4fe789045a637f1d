"""Which row groups go into the next file as they are: those that do not stand in the way of full ones."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.format.row_groups.stored import StoredGroups
from lakebed.handles.file_writer import FileWriter

# A row group of less than such a share of a full one is small: it does not stay by itself beside fresh rows.
_SMALL = 4
# The last row group takes new rows in while it has less than this share.
_ROOM_LEFT = 0.75


@dataclass(frozen=True)
class RowGroupCopies:
    """Copies row groups of a file behind the rows of an open one; `full_rows` are the rows of a full row group."""

    writer: FileWriter
    source: StoredGroups
    full_rows: int

    def take(self, number: int, behind: int) -> bool:
        """Copy a row group, unless it is to be joined; says which it was. `behind` new rows are to follow it."""
        if to_be_joined(self.source.groups[number].rows, self.writer.loose_rows, behind, self.full_rows):
            return False
        self.writer.copy(self.source, number)
        return True


def to_be_joined(rows: int, loose: int, behind: int, full: int) -> bool:
    """Whether a row group of so many rows is written together with the `loose` ones before it, or with those that come
    `behind` it."""
    small = full // _SMALL
    if loose and (loose < small or rows < small):
        return True
    return behind > 0 and rows < _ROOM_LEFT * full
