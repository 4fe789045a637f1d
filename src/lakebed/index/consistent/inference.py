"""The consistent-hashing index of a table that does not remember it: its rings are there, keys tell the hash fields."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.errors import IndexInconsistent, InvalidOption
from lakebed.index.bucket_keys import field_choices
from lakebed.index.consistent.index import ConsistentIndex
from lakebed.index.consistent.ring_files import RingFiles
from lakebed.slices.snapshot import Snapshot

_DEFAULT = int(ConsistentIndex.HUDI_SETTINGS["bucket.count"])


def consistent_of_rings(snapshot: Snapshot, fields: Sequence[str] = ()) -> ConsistentIndex:
    """The index of a table that has rings. The hash `fields` are those under which some keys of each file slice lie in
    its bucket: the whole key where that fits, as it does by default. `IndexInconsistent` where none fit."""
    partitions = snapshot.partitions()
    stored = [ring for path in partitions if (ring := RingFiles(snapshot, _DEFAULT).stored(path)) is not None]
    buckets = {ring.buckets for ring in stored}
    if len(buckets) > 1:
        shown = ", ".join(map(str, sorted(buckets)))
        raise InvalidOption(
            f"the rings of table {snapshot.config.name!r} had different numbers of buckets at first: {shown}",
            hint="jobs with different bucket counts wrote it; its partition paths are read, and written by real Hudi",
            context={"buckets": sorted(buckets)},
        )
    count = buckets.pop() if buckets else _DEFAULT
    key_fields = snapshot.config.key_fields
    if fields:
        index = ConsistentIndex(count, tuple(fields)).resolved(key_fields)
        index.check(snapshot)
        return index
    reasons: list[IndexInconsistent] = []
    for choice in field_choices(key_fields):
        index = ConsistentIndex(count, choice).resolved(key_fields)
        try:
            index.check(snapshot)
        except IndexInconsistent as reason:
            reasons.append(reason)
            continue
        return index
    raise reasons[0]
