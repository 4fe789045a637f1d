"""The kind `bloom_filters`: the bloom filter of each base file."""

from __future__ import annotations

from lakebed.metadata.kinds import bloom_records
from lakebed.metadata.kinds.kind import MetadataKind
from lakebed.metadata.layout import BLOOM_FILTERS

KIND = MetadataKind(
    BLOOM_FILTERS, file_id_start="bloom-filters", file_groups=4, decode=bloom_records.decode, build_position=20
)
