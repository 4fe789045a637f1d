"""What an upgrade or downgrade is going to do: a plan that prints, or the reason why the table stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from lakebed.metadata.kinds.definitions import IndexDefinition, load_definitions
from lakebed.metadata.kinds.expression_zones import noting
from lakebed.metadata.kinds.index_names import WANTED_PROPERTY, remembered_indexes, remembered_property
from lakebed.metadata.kinds.key_indexes import is_partitioned
from lakebed.metadata.layout import BLOOM_FILTERS, FILES, PARTITION_STATS, RECORD_INDEX
from lakebed.model import Action, has_completion_times
from lakebed.policies.rollback import is_log_path
from lakebed.properties.file import SUPPORTED_VERSIONS
from lakebed.properties.table_config import TableConfig
from lakebed.services.cleaning_plan import savepointed_files
from lakebed.services.upgrade_properties import changed_properties
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.registry import find_upkeep
from lakebed.wording import count_text

# Indexes that are to be built again, noted from before the first one goes until all are there: whoever runs the change
# again, after it was cut off, builds those.
NOTED_PROPERTY = "lakebed.upgrade.indexes"
# Metadata partitions that are the same in versions 8 and 9; others have another form in each.
_OF_BOTH = (FILES, BLOOM_FILTERS, RECORD_INDEX)


@dataclass(frozen=True)
class VersionPlan:
    """How a table comes from version `source` to `target`.

    `slices` with log files are compacted first; what only earlier views need is cleaned away where log files would
    mean something else (`cleans`). Of the timeline so many `instants`, and `archived` ones, are written in the other
    layout. Partitions of the metadata table are `rebuilt` or, with the reason, `dropped`. `properties` are the keys of
    `hoodie.properties` that change, with their new values.
    """

    source: int
    target: int
    slices: int = 0
    cleans: bool = False
    instants: int = 0
    archived: int = 0
    rebuilt: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict[str, str])
    properties: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])

    @property
    def is_crossing(self) -> bool:
        """Whether the timeline changes its layout."""
        return has_completion_times(self.source) != has_completion_times(self.target)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "from": self.source,
            "to": self.target,
            "slices_to_compact": self.slices,
            "cleans_history": self.cleans,
            "instants": self.instants,
            "archived_instants": self.archived,
            "indexes_rebuilt": list(self.rebuilt),
            "indexes_dropped": dict(self.dropped),
            "properties": dict(self.properties),
        }

    def __str__(self) -> str:
        lines = [f"table version {self.source} -> {self.target}"]
        if self.slices:
            lines.append(f"compaction of {count_text(self.slices, 'file slice')} with log files")
        if self.cleans:
            lines.append("files of earlier file slices are deleted: the past cannot be read any more")
        if self.is_crossing:
            lines.append(
                f"{count_text(self.instants, 'instant')} and {self.archived:,} archived ones get the other layout"
            )
        if self.rebuilt:
            lines.append(f"built again in the metadata table: {', '.join(self.rebuilt)}")
        lines += [f"dropped: {name} ({reason})" for name, reason in self.dropped.items()]
        lines += [f"{key}: {'(removed)' if text is None else text}" for key, text in self.properties.items()]
        return "\n".join(lines)

    __repr__ = __str__


def check_direction(version: int, to: int, verb: str) -> None:
    """Raise `InvalidOption` for a version that there is not, or that is on the other side."""
    if to not in SUPPORTED_VERSIONS:
        known = ", ".join(map(str, SUPPORTED_VERSIONS))
        raise InvalidOption(f"there is no table version {to} that lakebed writes", hint=f"It is one of {known}.")
    up = verb == "upgrade"
    if to != version and (to > version) != up:
        other = "downgrade" if up else "upgrade"
        raise InvalidOption(
            f"the table has version {version}: version {to} is {'before' if up else 'behind'} that",
            hint=f"Use t.{other}(to={to}) or `lakebed {other} URI --to {to}`.",
            context={"version": version, "to": to},
        )


def plan_version(snapshot: Snapshot, to: int) -> VersionPlan:
    """What is to be done with the table of this moment. Raises `UnsupportedFeature` or `InvalidOption` where it cannot
    have that version, `CommitConflict` while something is pending that has to be settled first."""
    config = snapshot.config
    if to == config.version:
        return VersionPlan(to, to)
    _check_indexes(config, to)
    changes = changed_properties(config, to) | _wanted(config, to)
    rebuilt, dropped = sorted_partitions(config, load_definitions(snapshot.storage, config), to)
    for name in dropped:
        changes |= noting(config.properties, name, None)
    plan = VersionPlan(config.version, to, rebuilt=tuple(rebuilt), dropped=dropped, properties=changes)
    _check_timeline(snapshot, plan)
    plan = replace(plan, slices=_slices(snapshot))
    if not plan.is_crossing:
        return plan
    return replace(
        plan,
        cleans=to < config.version and config.table_type == "mor",
        instants=len(snapshot.timeline.completed),
        archived=sum(i.is_completed for i in snapshot.timeline.archived().instants),
    )


def sorted_partitions(
    config: TableConfig, definitions: Mapping[str, IndexDefinition], to: int
) -> tuple[list[str], dict[str, str]]:
    """The partitions of the metadata table that are built again, and those that are dropped, with the reason; those
    that stay as they are, which tables of version 8 and 9 have alike, are in neither."""
    crossing = has_completion_times(config.version) != has_completion_times(to)
    rebuilt: list[str] = []
    dropped: dict[str, str] = {}
    for name in dict.fromkeys([*config.metadata_partitions, *noted_indexes(config)]):
        reason = _reason_to_drop(name, definitions.get(name), to)
        if reason is not None:
            dropped[name] = reason
        elif crossing or name not in _OF_BOTH or name not in config.metadata_partitions:
            rebuilt.append(name)
    return rebuilt, dropped


def noted_indexes(config: TableConfig) -> list[str]:
    """What a change that was cut off has taken off, to be built again."""
    return [name for name in config.properties.get(NOTED_PROPERTY, "").split(",") if name]


def _reason_to_drop(name: str, definition: IndexDefinition | None, to: int) -> str | None:
    if find_upkeep(name) is None:
        return "lakebed does not know it"
    if name.startswith("expr_index_"):
        return "expression indexes are bound to the version that they were made in"
    if to < 9 and name == RECORD_INDEX and is_partitioned(definition):
        return "one for each partition path is for version 9"
    if to < 8 and (name == PARTITION_STATS or name.startswith("secondary_index_")):
        return "version 6 has no such index"
    return None


def _wanted(config: TableConfig, to: int) -> dict[str, str | None]:
    """The indexes that the table asks for, without those that the version does not have."""
    names = remembered_indexes(config.properties)
    kept = [n for n in names if not (to < 9 and n.partitioned) and not (to < 8 and n.column is not None)]
    return {} if len(kept) == len(names) else {WANTED_PROPERTY: None, **remembered_property(kept)}


def _check_indexes(config: TableConfig, to: int) -> None:
    settings = config.index_settings
    if to < 9 and settings.get("type") == "record" and settings.get("partitioned", "").lower() == "true":
        raise UnsupportedFeature(
            f"writes to table {config.name!r} go by a record index for each partition path, which only version 9 has",
            hint="Tell the table another index first, e.g. t.indexes.adopt('simple').",
            context={"feature": "partitioned record index"},
        )


def _check_timeline(snapshot: Snapshot, plan: VersionPlan) -> None:
    timeline = snapshot.timeline
    for pending in timeline.pending:
        if timeline.is_pending_clustering(pending):
            raise CommitConflict(
                f"clustering {pending.time} of table {snapshot.config.name!r} is pending: the log files of its file"
                " groups cannot be compacted before it is settled",
                hint="Run it with t.cluster(), or take it off with real Hudi, then try again.",
                context={"instant": pending.time},
            )
        if pending.action is Action.INDEXING:
            raise CommitConflict(
                f"an index of table {snapshot.config.name!r} is being built (instant {pending.time})",
                hint="Try again when it is done.",
                context={"instant": pending.time},
            )
    if plan.is_crossing and plan.target < plan.source and snapshot.config.table_type == "mor":
        for time, paths in savepointed_files(timeline).items():
            if any(map(is_log_path, paths)):
                raise InvalidOption(
                    f"savepoint {time} of table {snapshot.config.name!r} keeps log files that version {plan.target}"
                    " would read otherwise",
                    hint=f'Delete it first: t.delete_savepoint("{time}"). Savepoints without log files stay.',
                    context={"instant": time},
                )


def _slices(snapshot: Snapshot) -> int:
    if snapshot.config.table_type != "mor":
        return 0
    return sum(bool(file_slice.log_files) for file_slice in snapshot.file_slices())
