"""Which index a table has at a moment, where it was changed: by the timeline, so that index and files change together.

A change of the index is a replace commit that carries it, as what the index was and what it is. Before the commit
completes, the change is also noted in `hoodie.properties`, for readers after the commit is archived. A note without its
commit changes the index for no reader. A commit changes it even if the properties were not updated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakebed.errors import CorruptFile, LakebedError
from lakebed.model import CommitMetadata, has_completion_times
from lakebed.properties.table_config import INDEX_CHANGES, INDEX_PREFIX, INDEX_REASON, TableConfig
from lakebed.timeline.timeline import Timeline

COMMITTED_CHANGE = "lakebed.index.change"
"""The key in a commit's extra metadata."""

Settings = Mapping[str, str]
"""The settings of a table's index, by the names of their properties without the prefix `lakebed.index.`."""


@dataclass(frozen=True, slots=True)
class IndexChange:
    """A change of the index at an instant. `settled` is whether the instant is archived."""

    instant: str
    before: Settings
    after: Settings
    settled: bool = False

    def to_json(self) -> dict[str, Any]:
        """This change as the JSON object that the table's properties store."""
        values = {"instant": self.instant, "before": dict(self.before), "after": dict(self.after)}
        return values | ({"settled": True} if self.settled else {})

    def committed(self) -> str:
        """This change as the text that commit metadata stores."""
        return json.dumps({"before": dict(self.before), "after": dict(self.after)}, sort_keys=True)


def settings_at(timeline: Timeline, config: TableConfig, as_of: str | None = None) -> Mapping[str, str]:
    """The table's index settings as of an instant (None: now)."""
    changes = changes_of(timeline, config)
    if not changes:
        return config.index_settings
    settings = changes[0].before
    for change in changes:
        if (as_of is None or change.instant <= as_of) and has_happened(timeline, change):
            settings = change.after
    return dict(settings)


def changes_of(timeline: Timeline, config: TableConfig) -> list[IndexChange]:
    """The changes that properties and commits record, the oldest first. Properties that were read before the timeline
    may lack the last changes."""
    noted = noted_changes(config)
    noted_instants = {change.instant for change in noted}
    replaces = [i for i in timeline.replacecommits if i.time not in noted_instants]
    for instant, body in zip(replaces, timeline.commits_metadata(replaces), strict=True):
        committed_change = _committed(instant.time, body)
        if committed_change is not None:
            noted.append(committed_change)
    return sorted(noted, key=lambda change: change.instant)


def noted_changes(config: TableConfig) -> list[IndexChange]:
    """The changes that the properties record."""
    text = config.properties.get(INDEX_CHANGES)
    if not text:
        return []
    try:
        return [
            IndexChange(entry["instant"], entry["before"], entry["after"], bool(entry.get("settled")))
            for entry in json.loads(text)
        ]
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFile(
            f"{INDEX_CHANGES} of table {config.name!r} cannot be read: {cause}",
            hint="Restore .hoodie/hoodie.properties from a copy.",
            context={"property": INDEX_CHANGES},
        ) from cause


def has_happened(timeline: Timeline, change: IndexChange) -> bool:
    """Whether the change's instant is completed, or was when it was archived."""
    if change.settled or timeline.is_completed(change.instant):
        return True
    if timeline.start is None or change.instant > timeline.start or change.instant in timeline.pending_writes:
        return False
    archived = timeline.archived()
    if has_completion_times(timeline.config.version):
        return archived.completion_time(change.instant) is not None
    try:
        archived.commit_metadata(change.instant)
    except (LakebedError, KeyError, FileNotFoundError):
        return False
    return True


def property_change_for(config: TableConfig, timeline: Timeline, change: IndexChange) -> dict[str, str | None]:
    """The change of properties that records an index change which is about to be committed."""
    return {INDEX_CHANGES: _text([*changes_of(timeline, config), change])}


def abandoned_changes(config: TableConfig, timeline: Timeline) -> list[IndexChange]:
    """The recorded changes whose instants do not exist any more."""
    pending = timeline.pending_writes
    return [c for c in noted_changes(config) if c.instant not in pending and not has_happened(timeline, c)]


def finish_interrupted_changes(config: TableConfig, timeline: Timeline) -> dict[str, str | None]:
    """The property changes (None: remove) that make the properties name the table's present index: an interrupted index
    change is finished, or its record removed. The properties of `config` were read under the lock. Empty if there is
    nothing to do."""
    changes = changes_of(timeline, config)
    if not changes:
        return {}
    retained: list[IndexChange] = []
    for change in changes:
        if has_happened(timeline, change):
            is_archived = not timeline.is_completed(change.instant)
            retained.append(replace(change, settled=change.settled or is_archived))
        elif change.instant in timeline.pending_writes:
            retained.append(change)
    retained = _without_archived(retained)
    properties = index_properties(config, settings_at(timeline, config)) | {
        INDEX_CHANGES: _text(retained) if retained else None
    }
    return {key: value for key, value in properties.items() if config.properties.get(key) != value}


def _without_archived(changes: list[IndexChange]) -> list[IndexChange]:
    """The changes without archived ones, except the last of these. Earlier index settings are dropped, and old views
    have no index."""
    settled = [at for at, change in enumerate(changes) if change.settled]
    if not settled or settled[-1] == 0:
        return changes
    last = changes[settled[-1]]
    return [replace(last, before={}), *changes[settled[-1] + 1 :]]


def index_properties(config: TableConfig, settings: Settings) -> dict[str, str | None]:
    """The changes of properties that record this index; None as a value removes the settings of another index."""
    if dict(settings) == config.index_settings:
        return {}
    now = {INDEX_PREFIX + key: value for key, value in settings.items()}
    removed: dict[str, str | None] = {INDEX_PREFIX + key: None for key in config.index_settings}
    if INDEX_REASON in config.properties:
        removed[INDEX_REASON] = None
    return removed | now


def declare_index(config: TableConfig, timeline: Timeline, settings: Settings) -> dict[str, str | None]:
    """The property changes for an index that a user declares for an existing table, without an instant."""
    changes: Sequence[IndexChange] = changes_of(timeline, config)
    properties = index_properties(config, settings)
    last = timeline.last_completed
    if not changes or last is None:
        return properties
    other_changes = [change for change in changes if change.instant != last.time]
    return properties | {
        INDEX_CHANGES: _text(
            [*other_changes, IndexChange(last.time, settings_at(timeline, config), settings, settled=True)]
        )
    }


def _committed(instant: str, body: CommitMetadata) -> IndexChange | None:
    text = body.extra.get(COMMITTED_CHANGE)
    if not text:
        return None
    change = json.loads(text)
    return IndexChange(instant, change["before"], change["after"])


def _text(changes: Iterable[IndexChange]) -> str:
    return json.dumps([change.to_json() for change in changes], sort_keys=True)
