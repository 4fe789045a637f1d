"""One word on a bucket that has grown beyond what is advised, by the write that made it so."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lakebed.index.bucket_counts import ADVISED_BYTES
from lakebed.model import path_in
from lakebed.operations.context import WriteContext
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.write_status import WriteStatus
from lakebed.wording import size_text

_log = logging.getLogger("lakebed")
_told: set[tuple[str, str, str]] = set()


def tell_of_growth(context: WriteContext, snapshot: Snapshot, statuses: Sequence[WriteStatus]) -> None:
    """Warn of each bucket that this write brought beyond the advised size, once a process. `snapshot` is the table
    before it."""
    if context.index.key_hash is None or not context.index.has_fixed_groups:
        return
    limit = context.settings.bucket_bytes or ADVISED_BYTES
    written = [s for s in statuses if s.path is not None]
    logged = {(s.partition, s.file_id) for s in written if s.log_files is not None}
    before: dict[tuple[str, str], int] = {}
    if logged:
        known = snapshot.file_slices({p for p, _ in logged}, groups_of_ids({name for _, name in logged}))
        before = {(one.partition, one.file_id): one.size for one in known}
    for status in written:
        place = status.partition, status.file_id
        size = status.file_size + (before.get(place, 0) if status.log_files is not None else 0)
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
