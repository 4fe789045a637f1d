"""The create handle: rows of a new file group, written to its first base file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakebed.handles.base import GroupWrite
from lakebed.handles.base_files import BaseFiles
from lakebed.merge.incoming import Incoming
from lakebed.write_status import WriteStatus


class CreateHandle:
    """Writes all rows but deletes; nothing where there are only deletes."""

    def __init__(self, group: GroupWrite) -> None:
        self._group = group

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        group = self._group
        counts: dict[str, Any] = {
            "rows_in": incoming.received,
            "num_unchanged": incoming.rows - incoming.alive,
            "num_combined": incoming.combined,
        }
        if incoming.alive == 0:
            return [WriteStatus(group.partition, group.target.file_id, **counts)]
        incoming.require_whole()
        files, fresh = BaseFiles(group), group.fresh_meta
        files.prepare_partition()
        files.add(fresh.with_meta(keys, data) for keys, data in incoming.alive_batches())
        first, *others = files.done
        return [replace(first, **counts), *others]
