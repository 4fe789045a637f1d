"""The options of a write by `format("lakebed")`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.config.creation import ARGUMENTS, PARTITION_BY, argument_name, argument_value
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.operations.once import DEFAULT_IDENTIFIER
from lakebed.secrets import masked_repr
from lakebed.spark_sink.stream import OPERATIONS, refuse_repeated_rows
from lakebed.storage import open_storage
from lakebed.storage.base import Storage

OPERATION = "hoodie.datasource.write.operation"
IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"
STORAGE_PREFIX = "storage."
# Names that Spark itself adds: to the options of a stream, and to those of a table of its catalog.
OF_SPARK = ("checkpointlocation", "queryname", "serialization.format", "owner", "provider", "location", "comment")
OF_SPARK_TABLES = ("external", "is_managed_location", "collation")
# A view may have them, and Spark gives its options to writes as well.
OF_READS = ("as_of", "query_type", "query", "start", "end", "columns", "where", "meta", "images")
_LAKEBED_OPTIONS = ("path", "operation", "identifier", "retries")
_PREFIXES = ("hoodie.", "lakebed.")
_STREAM_RETRIES = 3


@dataclass(frozen=True, repr=False)
class WriteOptions:
    """The options of a write: the table, the operation, the number of tries, and options of the write itself.

    `creation` has the arguments of `lakebed.create` for a table that does not exist.
    """

    path: str
    operation: str | None = None
    identifier: str = DEFAULT_IDENTIFIER
    retries: int | None = None
    checkpoint: str = ""
    worker_tuning: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    creation: Mapping[str, Any] = field(default_factory=dict[str, Any])
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    __repr__ = masked_repr

    def storage(self) -> Storage:
        """The table's storage."""
        return open_storage(self.path, dict(self.storage_options))

    @property
    def names_key(self) -> bool:
        """Whether the options name a key, so that a table can be created from them."""
        return bool(self.creation.get("key") or resolve_options(self.options).table.key_fields)

    def operation_of_stream(self, *, complete: bool, has_key: bool) -> str:
        """The operation of a stream: if none is named, complete results replace the table's rows, and other rows are
        upserted if the table has a key."""
        if self.operation is None:
            return "insert_overwrite_table" if complete else "upsert" if has_key else "bulk_insert"
        if complete:
            refuse_repeated_rows(self.operation, "complete")
        return self.operation

    def operation_of_batch(self, *, overwrite: bool, has_key: bool) -> str:
        """The operation of a batch: an overwrite replaces the table's rows, and other rows are upserted if no operation
        is named and the table has a key."""
        if overwrite and self.operation == "delete":
            raise InvalidOption(
                "operation='delete' with mode('overwrite') would not keep the rows that it is to delete from",
                hint='write with mode("append"), or t.delete(df)',
                context={"option": "operation"},
            )
        return "insert_overwrite_table" if overwrite else self.operation or ("upsert" if has_key else "bulk_insert")


def write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options by lakebed's names (`path`, `operation`, `identifier`, `retries`, `storage.<name>`) or Hudi's. Raises
    `InvalidOption` for unknown ones, with the nearest known one."""
    settings: dict[str, str] = {}
    hudi: dict[str, str] = {}
    storage: dict[str, str] = {}
    creation: dict[str, Any] = {}
    checkpoint = ""
    for name, value in options.items():
        key = name.lower()
        if key in _LAKEBED_OPTIONS:
            settings[key] = value
        elif key in (OPERATION, IDENTIFIER):
            settings.setdefault(key.rpartition(".")[2], value)
        elif key.startswith(STORAGE_PREFIX):
            storage[key.removeprefix(STORAGE_PREFIX)] = value
        elif key.startswith(_PREFIXES):
            hudi[key] = value
        elif argument_name(key) in (*ARGUMENTS, PARTITION_BY):
            creation[argument_name(key)] = argument_value(argument_name(key), value)
        elif key in (*OF_SPARK, *OF_SPARK_TABLES):
            checkpoint = value if key == "checkpointlocation" else checkpoint
        elif key in OF_READS:
            raise InvalidOption(
                f"{name!r} is an option of reads: rows are not written through a view that has it",
                hint="make a view with the path alone for INSERT",
                context={"option": name},
            )
        else:
            near = difflib.get_close_matches(key, (*_LAKEBED_OPTIONS, *ARGUMENTS, PARTITION_BY), n=1, cutoff=0.5)
            raise InvalidOption(
                f"a write by format('lakebed') has no option {name!r}",
                hint=f"did you mean {near[0]!r}?"
                if near
                else f"it has {', '.join(_LAKEBED_OPTIONS)}, storage.<name>, hoodie.* and arguments of lakebed.create",
                context={"option": name, "nearest": near[0] if near else None},
            )
    if "path" not in settings:
        raise InvalidOption("format('lakebed') needs the table's path", hint="give it to save(), or as option path")
    operation = settings.get("operation", "").strip().lower() or None
    if operation is not None and operation not in OPERATIONS:
        raise InvalidOption(
            f"format('lakebed') has no operation {settings['operation']!r}",
            hint=f"take {', '.join(OPERATIONS)}; t.merge(df) and t.update() do more",
            context={"option": "operation"},
        )
    return WriteOptions(
        path=settings["path"],
        operation=operation,
        identifier=settings.get("identifier", DEFAULT_IDENTIFIER),
        retries=_number(settings["retries"]) if "retries" in settings else _STREAM_RETRIES if streaming else None,
        checkpoint=checkpoint,
        worker_tuning=resolve_options(hudi).read.worker_tuning,
        options=hudi,
        creation=creation,
        storage_options=storage,
    )


def _number(text: str) -> int:
    if not text.strip().isdigit():
        raise InvalidOption(f"retries={text!r} is no whole number", context={"option": "retries"})
    return int(text)


def refuse_memory(path: str, storage: Storage) -> None:
    """Raise `UnsupportedFeature` for a table in the memory of one process."""
    if storage.spec.in_this_process:
        raise UnsupportedFeature(
            f"{path} is in the memory of the process that made it, and Spark writes in others",
            hint="make the table at a path, or write to it in that process: t.upsert(df), lakebed.stream_into(df, t)",
            context={"feature": "memory on Spark", "uri": path},
        )
