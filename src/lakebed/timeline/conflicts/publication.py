"""An instant that was published after its writer had lost the table lock: whether it may stand."""

from __future__ import annotations

from lakebed.model import Action, Instant, has_completion_times
from lakebed.timeline.actions import rollback_target
from lakebed.timeline.conflicts.commits import COMPACT_OPERATION, StartedAt, commits_since
from lakebed.timeline.instants import completes_as
from lakebed.timeline.rolled_back import rollback_record
from lakebed.timeline.service_plans import compaction_operations
from lakebed.timeline.table_config import TableConfig
from lakebed.timeline.timeline import Timeline


def reason_to_take_back(
    instant: str, action: Action, config: TableConfig, timeline: Timeline, checked: Timeline
) -> str | None:
    """Why it may not: somebody undid it, or committed or planned since the timeline was `checked` without seeing it.
    None where it stands."""
    # whose rollback was cut off finds its requested file still there
    if not is_requested(timeline, instant, action) or is_rolled_back(instant, timeline, checked):
        return "another writer rolled it back"
    since = [i for i in commits_since(timeline, StartedAt.of(checked)) if i.time != instant]
    for stats in (commit.stats for commit in timeline.commits_metadata(since)):
        if any(stat.prev_commit == instant for group in stats.values() for stat in group):
            return None
    if since:
        return f"instant {since[0].time} was committed"
    if config.table_type != "mor" or not has_completion_times(config.version):
        return None
    plan = plan_without(timeline.find(instant, action), timeline, checked)
    return None if plan is None else f"compaction {plan.time} was planned without its log files"


def is_requested(timeline: Timeline, instant: str, action: Action) -> bool:
    """Whether the first file of an instant is there, which goes when it is rolled back and nobody writes again."""
    return (instant, completes_as(action)) in timeline.requested


def plan_without(mine: Instant | None, timeline: Timeline, checked: Timeline) -> Instant | None:
    """A compaction that was planned since the timeline was `checked`, of a file group that this write appended to, and
    does not merge its log file: readers would look for that in the file slice before, and miss it."""
    if mine is None or not mine.is_completed:
        return None
    stats = (stat for group in timeline.commit_metadata(mine).stats.values() for stat in group)
    logs = {(s.partition, s.file_id): s.path.rpartition("/")[2] for s in stats if s.log_version is not None}
    before = {i.time for i in checked.instants}
    for plan in timeline.instants if logs else ():
        if plan.time in before or not _is_compaction(timeline, plan):
            continue
        for op in compaction_operations(timeline.plan(plan)):
            if logs.get((op.partition, op.file_id), "") not in ("", *op.log_files):
                return plan
    return None


def _is_compaction(timeline: Timeline, instant: Instant) -> bool:
    if instant.action is Action.COMMIT and instant.is_completed:
        return timeline.commit_metadata(instant).operation == COMPACT_OPERATION
    return instant.action is Action.COMPACTION


def is_rolled_back(instant: str, timeline: Timeline, checked: Timeline) -> bool:
    """Whether another writer has begun to take the instant back since the timeline was `checked`."""
    before = {i.time for i in checked.instants}
    rollbacks = [i for i in timeline.instants if i.action is Action.ROLLBACK and i.time not in before]
    return any(rollback_target(rollback_record(timeline, i)) == instant for i in rollbacks)
