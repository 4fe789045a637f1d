"""The key generator of a table, from what the table says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.expressions.key_generators import KeyGenerator, KeyGeneratorSpec, key_generator
from lakebed.model import RECORD_KEY
from lakebed.slices.reader import base_files_only
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.table_config import TableConfig

_TIMEBASED = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
_CONSISTENT = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"


def key_generator_spec(
    config: TableConfig,
    *,
    single_field_prefix: bool = True,
    timebased: Mapping[str, str] | None = None,
    partition_types: Sequence[str] | None = None,
) -> KeyGeneratorSpec:
    """What the table's properties say about keys. `single_field_prefix` matters to complex keys of one field only.

    `timebased` and `partition_types` are a job's own `hoodie.keygen.timebased.*` options and the types it gives to the
    fields of a custom key generator: real Hudi does not keep them in every table.
    """
    timestamp = {
        key.removeprefix(prefix): value
        for prefix in reversed(_TIMEBASED)
        for key, value in {**(timebased or {}), **config.properties}.items()
        if key.startswith(prefix)
    }
    kind = config.key_generator
    if kind == "USER_PROVIDED":
        kind = config.properties.get("hoodie.table.keygenerator.class", kind)
    return KeyGeneratorSpec(
        kind=kind,
        key_fields=config.key_fields,
        partition_fields=config.partition_fields,
        partition_types=config.partition_types or tuple(partition_types or ()),
        hive_style=config.hive_style,
        url_encode=config.url_encode,
        slash_dates=config.slash_dates,
        timestamp=timestamp,
        consistent_logical_timestamp=config.properties.get(_CONSISTENT, "false").lower() == "true",
        complex_single_field_prefix=single_field_prefix,
        timezone="UTC",
    )


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
    for file_slice in base_files_only(snapshot.file_slices()):
        for batch in snapshot.reader.read(file_slice, [RECORD_KEY]):
            if batch.num_rows and batch.column(0)[0].is_valid:
                return str(batch.column(0)[0].as_py()).startswith(f"{field}:")
    return True
