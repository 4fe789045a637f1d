"""One word on a bucket that has grown beyond what is advised, by the write that made it so."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from lakebed.index.bucket_counts import ADVISED_BYTES
from lakebed.model import FileGroupId, path_in
from lakebed.operations.context import WriteContext
from lakebed.slices.snapshot import Snapshot
from lakebed.wording import size_text
from lakebed.write_status import WriteStatus

_log = logging.getLogger("lakebed")
_told: set[tuple[str, str, str]] = set()


def tell_of_growth(
    context: WriteContext, snapshot: Snapshot, sizes: Mapping[FileGroupId, int], statuses: Sequence[WriteStatus]
) -> None:
    """Warn of each bucket that this write brought beyond the advised size, once a process. `snapshot` is the table
    before it, `sizes` are those of its file groups."""
    if context.index.key_hash is None or not context.index.has_fixed_groups:
        return
    limit = context.settings.bucket_bytes or ADVISED_BYTES
    for status in statuses:
        if status.path is None:
            continue
        place = status.partition, status.file_id
        size = status.file_size + (sizes.get(place, 0) if status.log_files is not None else 0)
        told = (snapshot.storage.spec.uri, *place)
        if size <= limit or told in _told:
            continue
        _told.add(told)
        _log.warning(
            "bucket %s of table %r has grown to %s; %s is advised, since each write that meets a bucket reads and"
            " writes all of it. t.rescale(buckets=...) gives the table more of them, t.rescale(split_over=%d) splits"
            " this one; t.files.skew() shows them all",
            path_in(*place),
            snapshot.config.name,
            size_text(size),
            size_text(limit),
            limit,
        )
