"""Pages as HTML: templates, numbers and times as people read them, and what is shown where something is damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import lakebed
from lakebed.inspector.tables import InspectedTable, Problem, UnknownPage, problem_of
from lakebed.table_views import TimelineView
from lakebed.wording import count_text, instant_text, size_text

T = TypeVar("T")
# An instant time is the longest number of an address; a message repeats so many characters of an address.
_MAX_NUMBER, _MAX_ECHO = 17, 120
TABS = (
    ("timeline", "Timeline"),
    ("rows", "Rows"),
    ("schema", "Schema"),
    ("files", "Files"),
    ("indexes", "Indexes"),
    ("record", "A record's life"),
    ("query", "Plan of a query"),
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: its content, or the problem in place of it."""

    content: Any = None
    problem: Problem | None = None


def section(read: Callable[[], Any]) -> Section:
    """The result of `read`, or its problem: one damaged part leaves the others of its page."""
    try:
        return Section(read())
    except UnknownPage:
        raise
    except Exception as error:
        return Section(problem=problem_of(error))


def seconds_between(start: str, end: str | None) -> float | None:
    """The seconds between two instant times of one zone; None if one is missing or not a date."""
    try:
        times = [datetime.strptime(text[:17].ljust(17, "0"), "%Y%m%d%H%M%S%f") for text in (start, end or "")]
    except ValueError:
        return None
    return (times[1] - times[0]).total_seconds()


def duration_text(seconds: float | None) -> str:
    """A number of seconds as text for display.

    >>> duration_text(0.2315), duration_text(75), duration_text(None)
    ('0.23 s', '1 min 15 s', '')
    """
    if seconds is None:
        return ""
    for unit, name, smaller_unit, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} {seconds % unit // smaller_unit:.0f} {below}"
    return f"{seconds:.2f} s"


def age_text(time: str, zone: str) -> str:
    """The time since an instant time of this zone (`UTC` or `LOCAL`), as text."""
    now = datetime.now(UTC) if zone.upper() == "UTC" else datetime.now()
    seconds = seconds_between(time, now.strftime("%Y%m%d%H%M%S%f")[:17])
    return "" if seconds is None or seconds < 0 else f"{duration_text(seconds)} ago"


def number_text(value: float | None) -> str:
    """A number with separators; empty for None."""
    return "" if value is None else f"{value:,}"


def bytes_text(value: float | None) -> str:
    """A size with its unit; empty for None."""
    return "" if value is None else size_text(value)


def is_asked_by_page(request: Request) -> bool:
    """Whether the request comes from a displayed page that loads a part of itself."""
    return request.headers.get("hx-request") == "true"


def is_of_this_site(request: Request) -> bool:
    """Whether a page of this server, and no other site, leads to the request: it may then begin something dear."""
    return request.headers.get("sec-fetch-site", "same-origin") == "same-origin"


def page_number(request: Request) -> int:
    """The number of the page of a long list in an address; 0 for the first, and without one."""
    return int(digits_of(request, "page") or 0)


def digits_of(request: Request, name: str) -> str | None:
    """A whole number in an address, or an instant time; None if it is absent. Raises `UnknownPage` for any other
    text."""
    text = request.query_params.get(name)
    if text is None or (text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER):
        return text
    raise UnknownPage(f"In this address, {name}={echo(text)} is no whole number of up to {_MAX_NUMBER} digits.")


def echo(text: str) -> str:
    """A text of an address for a message: quoted, and cut if it is long."""
    return repr(text if len(text) <= _MAX_ECHO else f"{text[:_MAX_ECHO]}…")


def link(path: str, **parameters: object) -> str:
    """An address below the table's, with those parameters that are not None."""
    query = urlencode({name: value for name, value in parameters.items() if value is not None}, errors="surrogatepass")
    return f"{path}?{query}" if query else path


def facts_of(table: InspectedTable, opened: lakebed.Table, timeline: TimelineView) -> Mapping[str, str]:
    """The facts at the top of each page of a table, with its last commit by this view of its timeline."""
    properties, last = opened.properties, timeline.last
    table.zone = properties.get("hoodie.table.timeline.timezone", table.zone)
    kind = {"COPY_ON_WRITE": "copy-on-write", "MERGE_ON_READ": "merge-on-read"}
    stored = properties.get("hoodie.table.type", "")
    return {
        "name": opened.name,
        "type": f"{kind.get(stored, stored.lower())}, version {properties.get('hoodie.table.version', '?')}",
        "key": properties.get("hoodie.table.recordkey.fields") or "generated",
        "partitioned by": properties.get("hoodie.table.partition.fields") or "nothing",
        "last commit": instant_text(last.time) if last else "none yet",
    }


class Pages:
    """The maker of the pages about these tables. The pages name no address of another host."""

    def __init__(self, tables: Sequence[InspectedTable]) -> None:
        self.tables = tables
        self._templates = Environment(
            loader=PackageLoader("lakebed.inspector"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Any] = self._templates.filters
        filters |= {"when": instant_text, "age": age_text, "duration": duration_text, "number": number_text}
        filters |= {"size": bytes_text, "count": count_text}
        names: dict[str, Any] = self._templates.globals
        names |= {"tabs": TABS, "tables": tables, "link": link, "version": lakebed.__version__}

    def answer(
        self, page: Callable[[Pages, InspectedTable, Request], Response], table: InspectedTable, request: Request
    ) -> Response:
        """The page about one table; if the table cannot be opened, the page of that problem."""
        try:
            return page(self, table, request)
        except UnknownPage:
            raise
        except Exception as error:
            return self.show(table, "problem.html", {"problem": problem_of(error)}, request)

    def show(self, table: InspectedTable, template: str, values: Mapping[str, Any], request: Request) -> Response:
        """A template filled with these values. Parts of pages (their names begin with `part_`) are returned alone if a
        page loads them, otherwise as a complete page."""
        is_part = template.startswith("part_")
        names = {"table": table, "base": f"/t/{table.number}", **values}
        if not (is_part and is_asked_by_page(request)):
            path = request.url.path.split("/")
            names = {"tab": path[3], "part": template, **names}
            if "facts" not in names:
                names["facts"] = section(lambda: self._facts(table))
            template = "whole.html" if is_part else template
        text = self._templates.get_template(template).render(names)
        return HTMLResponse(table.redacted(text).encode("utf-8", "replace"))

    def front(self) -> Response:
        """The list of tables."""
        listed = [(table, section(lambda table=table: self._facts(table))) for table in self.tables]
        text = self._templates.get_template("front.html").render(listed=listed, table=None, tab="")
        for table in self.tables:
            text = table.redacted(text)
        return HTMLResponse(text.encode("utf-8", "replace"))

    def refusal(self, title: str, message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
        """The page for a request that is refused, for example for an unknown address."""
        values = {"title": title, "message": message, "table": None, "tab": ""}
        text = self._templates.get_template("refusal.html").render(values)
        return HTMLResponse(text.encode("utf-8", "replace"), status_code=status, headers=headers)

    @staticmethod
    def _facts(table: InspectedTable) -> Mapping[str, str]:
        with table.opened() as opened:
            return facts_of(table, opened, opened.timeline)
