"""What a table's properties say about its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.expressions.key_generators import KeyGeneratorSpec, key_generator
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


@dataclass(frozen=True, slots=True)
class KeyTexts:
    """The record keys of rows of a table that does not store them. It pickles."""

    config: TableConfig

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        return key_generator(key_generator_spec(self.config)).key_text_of(pa.Table.from_batches([rows]))
