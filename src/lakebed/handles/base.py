"""What a handle is: it writes the incoming rows of one file group. Read this file first.

`create.py` writes a new file group, `merge.py` the next base file of a slice, `append.py` log files of a slice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lakebed.engine.base import Task
from lakebed.expressions.partition_paths import PathCheck
from lakebed.handles.file_writer import FileFormat
from lakebed.handles.targets import Target
from lakebed.merge.incoming import Incoming
from lakebed.merge.meta_columns import FreshMeta
from lakebed.merge.row_merge import OnMatch
from lakebed.merge.rules import MergeRules
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Storage
from lakebed.write_status import WriteStatus


class Handle(Protocol):
    """Writes one file group in one task. It lives from the group's first row to its statuses."""

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        """Write the rows; one status for each file, or one that says that nothing had to be written.

        Rows of a table that is sorted come in the order of their keys. What was begun is given up if this raises.
        """
        ...


@dataclass(frozen=True, slots=True)
class GroupWrite:
    """One file group of a write, as its handle gets it.

    `on_match` says what happens to a stored row of the same key, `new_partition` that the partition path may not be
    there yet, `located` that the keys of its rows were looked up: a stored row is there for each, `delete_lookup` that
    deletes without an ordering value take that of the stored row. `memory` bounds the rows that are held.
    """

    reader: SliceReader
    instant: str
    format: FileFormat
    rules: MergeRules
    on_match: OnMatch
    max_file_size: int
    memory: int
    path_check: PathCheck
    new_partition: bool
    partition: str
    number: int
    target: Target
    task: Task
    located: bool = False
    delete_lookup: bool = False

    @property
    def storage(self) -> Storage:
        return self.reader.storage

    @property
    def takes_new_keys_only(self) -> bool:
        """Whether rows of stored keys are left out or refused."""
        return self.on_match in ("skip", "fail")

    @property
    def base_of_positions(self) -> str | None:
        """The instant of the base file whose rows log blocks name by their numbers; None where they do not."""
        file_slice = self.target.slice
        if file_slice is None or file_slice.base_file is None or not self.format.settings.record_positions:
            return None
        return file_slice.base_file.instant if self.reader.config.has_record_positions else None

    @property
    def fresh_meta(self) -> FreshMeta:
        """The meta columns of the group's new and changed rows."""
        return self.format.fresh_meta(self.instant, self.partition, self.task)


HandleType = Callable[[GroupWrite], Handle]
"""Makes the handle of a group: a class, or anything that pickles, since it is sent to tasks."""
