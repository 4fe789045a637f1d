"""`KeyIndexUpkeep`: the kinds of partitions that are kept from changed record keys, in this process or by jobs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.engine.base import GROUP
from lakebed.metadata.kinds.key_changes import GroupChanges
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm
from lakebed.metadata.store.group_files import FileGroup
from lakebed.model import PARTITION_PATH
from lakebed.upkeep.kind import KindUpkeep

# The columns by which a job shuffles rows to the file groups of an index.
GROUPED = ((PARTITION_PATH, pa.string()), (GROUP, pa.int32()))


class KeyIndexUpkeep(KindUpkeep):
    """What tasks do where an action changed many keys: they make rows of `changes_schema` from the changes of the
    table's file groups, and records from all such rows of one file group of the index."""

    changes_schema: pa.Schema

    def grouped_changes(
        self, partition: str, part: GroupChanges, indexes: KeyIndexes, groups: Sequence[FileGroup]
    ) -> pa.Table:
        """The changes of one file group of the table, with the number of the file group of the index that each goes
        to."""
        raise NotImplementedError

    def group_records(self, rows: pa.Table, instant: str, form: RecordForm) -> Records:
        """The records of one file group of the index."""
        raise NotImplementedError
