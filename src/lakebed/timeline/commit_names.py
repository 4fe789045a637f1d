"""Names of commits besides their instants: the numbers of versions, and the names of savepoints, which are the comments
of Hudi's savepoints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lakebed.errors import InvalidOption
from lakebed.model import Action, Instant
from lakebed.timeline.timeline import Timeline, completed_at
from lakebed.wording import count_text

CLONE_NAME = "clone "
"""How the name of a savepoint begins that keeps the files of a clone; the URI of the clone follows."""


def numbered_commits(timeline: Timeline) -> tuple[int, Sequence[Instant]]:
    """The number of the first commit of the active timeline, and its commits in the order of completion: each has the
    number after that of the commit before it.

    The first commit that the table ever had is number 1. A number stays with its commit until it is rolled back. The
    archived commits are counted, which reads the archive.
    """
    return len(_archived_alone(timeline)) + 1, timeline.commits_by_completion


def commit_of_number(timeline: Timeline, number: int) -> Instant:
    """The completed commit of this number, also an archived one. Raises `InvalidOption` if there is none."""
    commits = [*sorted(_archived_alone(timeline), key=completed_at), *timeline.commits_by_completion]
    if 0 < number <= len(commits):
        return commits[number - 1]
    raise no_version(timeline.config.name, number, len(commits))


def no_version(table: str, number: int, last: int) -> InvalidOption:
    """The error for a number that none of the `last` commits of a table has."""
    only = "Its only version is 1" if last == 1 else f"Its versions are 1 to {last}"
    return InvalidOption(
        f"table {table!r} has no version {number}",
        hint=f"{only}; t.versions lists those whose commits are not archived." if last else "It has no commit yet.",
        context={"version": number, "last": last},
    )


def _archived_alone(timeline: Timeline) -> list[Instant]:
    """The archived commits that the active timeline does not have, each once: one that archival wrote in two attempts
    is in the archive twice."""
    alone = {i.time: i for i in timeline.archived_commits() if i.time not in timeline.commit_times}
    return list(alone.values())


def savepoint_names(timeline: Timeline) -> dict[str, list[str]]:
    """The instants of the savepoints of each name; savepoints without a name are left out."""
    names: dict[str, list[str]] = defaultdict(list)
    for instant in timeline.completed:
        if instant.action is Action.SAVEPOINT and (name := timeline.metadata(instant).get("comments")):
            names[name].append(instant.time)
    return dict(names)


def instant_of_savepoint(timeline: Timeline, name: str) -> str | None:
    """The instant of the savepoint of this name; None if no savepoint has the name. Raises `InvalidOption` if several
    have it."""
    instants = savepoint_names(timeline).get(name, [])
    if len(instants) > 1:
        raise InvalidOption(
            f"{name!r} is the name of {count_text(len(instants), 'savepoint')}",
            hint=f"Give the instant of one of them: {', '.join(instants)}.",
            context={"name": name, "instants": instants},
        )
    return instants[0] if instants else None
