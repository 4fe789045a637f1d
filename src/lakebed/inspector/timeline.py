"""The pages of the timeline: instants as bars and as a table, and one instant with what it wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import lakebed
from lakebed.config.commit_notes import NOTES, operation_of
from lakebed.inspector.rendering import Pages, digits_of, echo, facts_of, is_asked_by_page, seconds_between, section
from lakebed.inspector.tables import InspectedTable, UnknownPage, problem_of
from lakebed.model import COMMIT_ACTIONS, Instant, WriteStat
from lakebed.table_views import TimelineView

_PAGE = 50
# A page shows so many files of a commit, and so much of its body.
_MAX_FILES, _MAX_BODY = 200, 100_000
_SOURCES = ("active", "archived", "metadata")


def overview(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page with the newest instants as bars and as a table, pending ones on top; older ones and the archive by
    paging."""
    source, before = _source(request), digits_of(request, "before")
    part = is_asked_by_page(request) and before is not None
    with table.opened() as opened:
        timeline = opened.timeline
        view = _view(timeline, source)
        listed = section(lambda: _page(view, before))
        values = {"of": source, "listed": listed, "total": 0 if view is None else len(view)}
        if part:
            return pages.show(table, "part_instants.html", values, request)
        # the archive is history: what happened lately is on the timeline
        recent = view if source == "metadata" and view is not None else timeline
        plot = section(lambda: recent.plot(_PAGE))
        waiting = timeline.pending[-_PAGE:]
        pending = section(
            lambda: [{**row, "writer": _writer(waiting, i)} for row, i in zip(_rows(waiting), waiting, strict=True)]
        )
        facts = section(lambda: facts_of(table, opened, timeline))
    values |= {"plot": plot, "pending": pending, "facts": facts}
    return pages.show(table, "timeline.html", values, request)


def _source(request: Request) -> str:
    """The timeline that an address names."""
    source = request.query_params.get("of", "active")
    if source not in _SOURCES:
        raise UnknownPage(f"There is no timeline of={echo(source)}: take {', '.join(_SOURCES)}.")
    return source


def _view(timeline: TimelineView, source: str) -> TimelineView | None:
    if source == "metadata":
        return timeline.metadata_table
    return timeline.archived if source == "archived" else timeline


def _page(view: TimelineView | None, before: str | None) -> Mapping[str, Any]:
    """The rows of one page, newest first, and the start of the next one: the number of instants before it."""
    end = 0 if view is None else len(view)
    if before is not None:
        end = min(end, int(before))
    start = max(0, end - _PAGE)
    rows = _rows(view[start:end])[::-1] if view is not None else []
    longest = max((row["seconds"] or 0.0 for row in rows), default=0.0)
    return {"rows": rows, "next": start or None, "longest": longest}


def _writer(view: TimelineView, instant: Instant) -> str:
    """A sentence whether the writer of a pending instant is alive, by its heartbeat; empty without one."""
    beat = view.heartbeat(instant)
    if beat is None:
        return ""
    age = f"Last heartbeat {beat.seconds:,.0f} seconds ago" + (f", of {beat.process}" if beat.process else "")
    if beat.has_ended:
        return f"{age}. The process has ended: the next write takes this back."
    if beat.seconds > beat.limit:
        limit = f"That is more than {beat.limit:,.0f} seconds"
        return f"{age}. {limit}: the writer is dead, and the next write takes this back."
    return f"{age}. The writer runs; it counts as dead {beat.limit:,.0f} seconds after its last heartbeat."


def _rows(view: TimelineView) -> list[dict[str, Any]]:
    """A row for each instant. The row of an instant whose body cannot be read has `damage`."""
    try:
        rows = view.to_arrow().to_pylist()
        sizes = {row["commit_time"]: row["total_bytes_written"] for row in view.commit_totals().to_pylist()}
        return [
            {**row, "bytes": sizes.get(row["time"]), "damage": "", "seconds": _seconds(instant)}
            for row, instant in zip(rows, view, strict=True)
        ]
    except Exception as error:
        if len(view) == 1:
            return [_damaged(view[0], error)]
        return [row for at in range(len(view)) for row in _rows(view[at : at + 1])]


def _damaged(instant: Instant, error: Exception) -> dict[str, Any]:
    nothing = dict.fromkeys(("operation", "files", "inserted", "updated", "deleted", "bytes", *NOTES))
    return {
        **nothing,
        "time": instant.time,
        "action": instant.action.value,
        "state": instant.state.name.lower(),
        "completion_time": instant.completion_time,
        "seconds": _seconds(instant),
        "damage": problem_of(error).message,
    }


def _seconds(instant: Instant) -> float | None:
    return seconds_between(instant.time, instant.completion_time)


def _found(opened: lakebed.Table, request: Request) -> tuple[TimelineView, Instant]:
    """The instant that an address names, and its timeline."""
    time, action = request.query_params.get("time", ""), request.query_params.get("action", "")
    source = _source(request)
    timeline = opened.timeline
    sources = {"active": ("active", "archived")}.get(source, (source,))  # it may have been archived since
    for view in (_view(timeline, source_name) for source_name in sources):
        for instant in view or ():
            if instant.time == time and instant.action.value == action:
                return (view or timeline), instant
    raise UnknownPage(f"The timeline has no instant time={echo(time)} of action={echo(action)}.")


def instant(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page of one instant: the files that it wrote, and its body as JSON."""
    with table.opened() as opened:
        view, entry = _found(opened, request)
        at = list(view).index(entry)
        row = _rows(view[at : at + 1])[0]
        is_commit = entry.is_completed and entry.action in COMMIT_ACTIONS
        written = section(lambda: _written(view, entry)) if is_commit else None
        json_body = section(lambda: _json_text(view.body(entry), _MAX_BODY))
    values = {"row": row, "written": written, "body": json_body}
    return pages.show(table, "instant.html", {**values, "of": request.query_params.get("of", "active")}, request)


def body(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The body of one instant as a JSON file."""
    with table.opened() as opened:
        view, entry = _found(opened, request)
        text = "".join(_encoder().iterencode(view.body(entry)))
    named = {"content-disposition": f'attachment; filename="{entry.time}.{entry.action.value}.json"'}
    return Response(
        table.redacted(text).encode("utf-8", "replace"), media_type="application/json; charset=utf-8", headers=named
    )


def _encoder() -> json.JSONEncoder:
    return json.JSONEncoder(indent=2, ensure_ascii=False, default=str)


def _json_text(body: Mapping[str, Any], limit: int) -> tuple[str, bool]:
    """The body as JSON, at most `limit` characters of it, and whether that is all."""
    pieces: list[str] = []
    length = 0
    for piece in _encoder().iterencode(body):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            return "".join(pieces)[:limit], False
    return "".join(pieces), True


def _written(view: TimelineView, commit_instant: Instant) -> Mapping[str, Any]:
    """The totals of a commit, and its files with their changes."""
    commit = view.commit(commit_instant)
    stats = [stat for group in commit.stats.values() for stat in group]
    totals = _totals(stats)
    replaced = sum(len(ids) for ids in commit.replaced.values())
    extra = {name: value for name, value in commit.extra.items() if value and name not in ("schema", "latest_schema")}
    return {
        "operation": operation_of(commit.operation, commit.extra),
        "totals": totals,
        "partitions": len(commit.stats),
        "replaced": replaced,
        "files": list(islice(stats, _MAX_FILES)),
        "more": max(0, len(stats) - _MAX_FILES),
        "extra": dict(sorted(extra.items())),
    }


def _totals(stats: Sequence[WriteStat]) -> Mapping[str, float]:
    def total(values: Iterable[int]) -> int:
        return sum(values)

    return {
        "files": len(stats),
        "new": sum(stat.prev_commit in ("", "null") for stat in stats),
        "written": total(stat.num_writes for stat in stats),
        "inserted": total(stat.num_inserts for stat in stats),
        "updated": total(stat.num_updates for stat in stats),
        "deleted": total(stat.num_deletes for stat in stats),
        "bytes": total(stat.file_size for stat in stats),
        "create": total(stat.create_millis for stat in stats) / 1000,
        "merge": total(stat.upsert_millis for stat in stats) / 1000,
    }
