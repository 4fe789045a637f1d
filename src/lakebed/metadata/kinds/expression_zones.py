"""In which time zone the results of an expression index were computed, as far as that is known.

Hudi takes the zone of whichever session writes and notes it nowhere. A table's property notes it for the indexes that
lakebed built: for the files they were built from, and for those that lakebed wrote since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.format.text import parse_properties
from lakebed.metadata.layout import METADATA_FOLDER
from lakebed.storage.base import Storage

ZONES_PROPERTY = "lakebed.metadata.expression.zones"
_PARTITION_METADATA = ".hoodie_partition_metadata"
_UTC = frozenset({"UTC", "ETC/UTC", "GMT", "Z", "+00:00"})


@dataclass(frozen=True, slots=True)
class ZoneNote:
    """The `zone` of an index that was `created` at this instant of the metadata table, from the files up to the `built`
    instant of the table."""

    zone: str
    created: str
    built: str


def zone_notes(properties: Mapping[str, str]) -> dict[str, ZoneNote]:
    """What is noted, by the index's partition.

    >>> zone_notes({ZONES_PROPERTY: "expr_index_day UTC 00000000000000002 20240101000000000"})["expr_index_day"].zone
    'UTC'
    """
    rows = (text.split() for text in properties.get(ZONES_PROPERTY, "").split(","))
    return {row[0]: ZoneNote(*row[1:]) for row in rows if len(row) == 4}


def noting(properties: Mapping[str, str], partition: str, note: ZoneNote | None) -> dict[str, str | None]:
    """The change of properties that notes the zone of one index, or (None) forgets it."""
    notes = zone_notes(properties)
    notes.pop(partition, None)
    if note is not None:
        notes[partition] = note
    texts = [f"{name} {one.zone} {one.created} {one.built}" for name, one in sorted(notes.items())]
    return {ZONES_PROPERTY: ",".join(texts) or None} if texts or ZONES_PROPERTY in properties else {}


def created_at(storage: Storage, partition: str) -> str:
    """The instant at which a partition of the metadata table was created; "" where that cannot be read. `storage` is
    the data table's."""
    try:
        body = storage.read(f"{METADATA_FOLDER}/{partition}/{_PARTITION_METADATA}")
    except FileNotFoundError:
        return ""
    return parse_properties(body).get("commitTime", "")


def is_same_zone(zone: str, other: str) -> bool:
    """Whether two names mean one zone; names of UTC do."""
    return zone == other or (zone.upper() in _UTC and other.upper() in _UTC)
