"""Giving record and secondary indexes another number of file groups, under the table lock."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.concurrency.lock import default_lock
from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.metadata.kinds.index_names import key_index_of
from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.store.writer import MetadataWriter
from lakebed.properties.file import load_table_config
from lakebed.storage.base import Storage
from lakebed.timeline.timeline import load_timeline

# Replaced file groups keep their numbers until they are cleaned, and file ids have four digits.
_MOST = 4096


def reshard_index(
    storage: Storage, name: str, file_groups: int | Mapping[str, int], *, wait_seconds: float | None = None
) -> str | None:
    """Give an index so many file groups: `name` as `create_index` takes it, or its partition of the metadata table.

    A partitioned record index gets a number for each partition path that `file_groups` names, or the same for all of
    them. Gives the instant of the replacecommit on the metadata table's timeline, None where nothing changes.

    Raises `InvalidOption` for an index that the table does not have, one of another kind or a number out of range,
    `CommitConflict` while a write to the table is pending, `LockTimeout`; nothing is changed then.
    """
    wait = WriteSettings().lock_wait_seconds if wait_seconds is None else wait_seconds
    with default_lock(storage, wait_seconds=wait):
        config = load_table_config(storage)
        partition = key_index_of(config, name)
        _check_numbers(partition, file_groups)
        writer = MetadataWriter(storage, config, load_timeline(storage, config))
        kind = kind_of(partition)
        if isinstance(file_groups, int) and kind.by_data_partition:
            slices = writer.view().slices.file_slices(partition)
            paths = sorted({path for s in slices if (path := kind.data_partition_of(s.file_id)) is not None})
            if paths:
                file_groups = dict.fromkeys(paths, file_groups)
        return writer.reshard(partition, file_groups)


def _check_numbers(partition: str, file_groups: int | Mapping[str, int]) -> None:
    numbers = [file_groups] if isinstance(file_groups, int) else list(file_groups.values())
    wrong = [n for n in numbers if not 1 <= n <= _MOST]
    if wrong or not numbers:
        raise InvalidOption(
            f"{partition} with file_groups={wrong[0] if wrong else file_groups}",
            hint=f"An index has 1 to {_MOST} file groups, a partitioned one for each partition path.",
            context={"index": partition, "file_groups": file_groups},
        )
