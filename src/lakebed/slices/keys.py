"""The key generator of a table, from what the table says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.expressions.key_generators import KeyGenerator, key_generator
from lakebed.model import RECORD_KEY
from lakebed.properties.table_config import key_generator_spec
from lakebed.slices.snapshot import Snapshot


def table_keys(
    snapshot: Snapshot, timebased: Mapping[str, str] | None = None, partition_types: Sequence[str] | None = None
) -> KeyGenerator:
    """The table's key generator. Releases disagree on complex keys of one field: the stored keys decide."""
    config = snapshot.config
    prefix = True
    if config.key_generator == "COMPLEX" and len(config.key_fields) == 1 and config.version < 9:
        prefix = _stored_prefix(snapshot, config.key_fields[0])
    spec = key_generator_spec(config, single_field_prefix=prefix, timebased=timebased, partition_types=partition_types)
    return key_generator(spec)


def _stored_prefix(snapshot: Snapshot, field: str) -> bool:
    for file_slice in snapshot.file_slices():
        slim = file_slice.without_logs() if file_slice.base_file else file_slice
        for batch in snapshot.reader.read(slim, [RECORD_KEY]):
            if batch.num_rows and batch.column(0)[0].is_valid:
                return str(batch.column(0)[0].as_py()).startswith(f"{field}:")
    return True
