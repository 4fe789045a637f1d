"""The body of a savepoint: who made it, when and why, and the files that cleaning keeps for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakebed.format.avro.encoder import write_avro_file
from lakebed.model import path_in
from lakebed.timeline.avro_schemas import schema_text


def encode_savepoint(files: Mapping[str, Sequence[str]], *, user: str, comment: str, at_millis: int) -> bytes:
    """The completed body of a savepoint of these files: their names by partition path."""
    record = {
        "savepointedBy": user,
        "savepointedAt": at_millis,
        "comments": comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in files.items()
        },
        "version": 1,
    }
    return write_avro_file(schema_text("HoodieSavepointMetadata"), record)


def savepointed_names(record: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The names of the files that a savepoint keeps, by partition path."""
    found: Mapping[str, Mapping[str, Any]] = record.get("partitionMetadata") or {}
    return {
        (part.get("partitionPath") or ""): tuple(
            name.rpartition("/")[2] for name in part.get("savepointDataFile") or ()
        )
        for part in found.values()
    }


def savepointed_paths(record: Mapping[str, Any]) -> list[str]:
    """The same as paths relative to the table."""
    return [path_in(partition, name) for partition, names in savepointed_names(record).items() for name in names]
