"""The indexes of a table's metadata table, with what is known of each without reading it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.layout import FILES
from lakebed.slices.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """One index: its partition of the metadata table, kind, the fields it is on, file groups, and bytes of their latest
    slices."""

    name: str
    kind: str
    fields: tuple[str, ...]
    file_groups: int
    bytes: int


def list_indexes(snapshot: Snapshot) -> Sequence[IndexFacts]:
    """The complete indexes, `files` first; one listing each."""
    metadata = snapshot.metadata
    if metadata is None:
        return ()
    names = sorted(metadata.slices.partitions, key=lambda name: (name != FILES, name))
    return tuple(_facts(snapshot, name) for name in names)


def _facts(snapshot: Snapshot, name: str) -> IndexFacts:
    assert snapshot.metadata is not None
    slices = snapshot.metadata.slices.file_slices(name)
    definition = snapshot.metadata.slices.definitions.get(name)
    size = sum(file.size for s in slices for file in (*([s.base_file] if s.base_file else []), *s.log_files))
    kind = kind_of(name).describe(definition) or name.replace("_", " ")
    fields = definition.source_fields if definition is not None else ()
    return IndexFacts(name, kind, fields, len(slices), size)
