"""Pictures of tables as SVG: bars of sizes, instants on a time axis, ranges of a column. Notebooks and the inspector
show the same ones: colours are attributes, which a style sheet overrides by the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 960
_MUTED, _BLUE, _AMBER, _RED = "#7a8794", "#3d74a8", "#c77d0a", "#c0392b"
_COLOURS = {"completed": _BLUE, "inflight": _AMBER, "requested": _MUTED}


class Picture(str):
    """An SVG text that a notebook shows as a picture.

    >>> Picture("<svg/>")._repr_html_()
    '<svg/>'
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def _text(x: float, y: float, text: str, anchor: str = "start", *, size: int = 12) -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text class="label" fill="currentColor" {attributes}>{escape(text)}</text>'


def _rect(at: tuple[float, float, float, float], css: str, colour: str, title: str) -> str:
    x, y, width, height = at
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.0):.1f}" height="{max(height, 0.5):.1f}"'
    return f'<rect class="{css}" fill="{colour}" {box}><title>{escape(title)}</title></rect>'


def _line(x1: float, y1: float, x2: float, y2: float, css: str = "rule", dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{css}" stroke="{_MUTED}" stroke-opacity="0.5"{dashes} {ends}/>'


def _svg(height: float, label: str, parts: Sequence[str]) -> Picture:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img"'
    return Picture(f'{head} font-family="system-ui,sans-serif" aria-label="{escape(label)}">{"".join(parts)}</svg>')


@dataclass(frozen=True, slots=True)
class Bar:
    """A size in a picture. `title` is shown under the pointer, `is_marked` makes the bar red, `name` stands below the
    bar, of many bars below some."""

    size: float
    title: str
    is_marked: bool = False
    name: str = ""


_BARS_HEIGHT, _BARS_ROOM = 160, 26
# So many names have room below the bars; a character of them is so wide.
_MAX_NAMES, _NAME_WIDTH = 12, 6.2


def bars(sizes: Sequence[Bar], label: str, mean: float | None = None) -> Picture:
    """A bar for each size from left to right, and a line at `mean` (None: at their own). `label` is the text below. Of
    many bars every second, third, ... one has its name, beginning with the first."""
    largest, step = max((bar.size for bar in sizes), default=1) or 1, WIDTH / max(1, len(sizes))
    drawn: list[str] = []
    apart = max(1, -(-len(sizes) // _MAX_NAMES))  # from a bar with a name to the next one
    room = _BARS_ROOM + (16 if any(bar.name for bar in sizes) else 0)
    for at, bar in enumerate(sizes):
        height = bar.size / largest * _BARS_HEIGHT
        box = (at * step, _BARS_HEIGHT - height, min(step * 0.85, 80.0), height)
        drawn.append(_rect(box, "bar marked" if bar.is_marked else "bar", _RED if bar.is_marked else _BLUE, bar.title))
        if bar.name and at % apart == 0:
            limit = int(min(step * apart, WIDTH - at * step) / _NAME_WIDTH) - 1
            text = bar.name if len(bar.name) <= limit else f"{bar.name[: limit - 1]}…"
            drawn.append(_text(at * step, _BARS_HEIGHT + 16, text, size=11))
    if mean is None:
        mean = sum(bar.size for bar in sizes) / max(1, len(sizes))
    at_mean = _BARS_HEIGHT - mean / largest * _BARS_HEIGHT
    base = _line(0, _BARS_HEIGHT + 0.5, WIDTH, _BARS_HEIGHT + 0.5)
    caption = _text(0, _BARS_HEIGHT + room - 8, label)
    rule = _line(0, at_mean, WIDTH, at_mean, "mean", "4") if sizes else ""
    return _svg(_BARS_HEIGHT + room, label, [*drawn, base, rule, caption])


@dataclass(frozen=True, slots=True)
class Span:
    """An instant on a time axis, in milliseconds. `end` is None while the instant is pending, `state` is the name of
    its state."""

    start: float
    end: float | None
    state: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """The spans of one action, in one row of the picture."""

    name: str
    spans: tuple[Span, ...]


_LANE_HEIGHT, _BAR_HEIGHT, _NAMES_WIDTH, _MIN_BAR, _TICK_ROOM = 24, 14, 130, 3.0, 130.0


class _Axis:
    """An axis that maps milliseconds to positions. Idle times are shortened to the mean duration: instants take
    seconds, and days may pass between them."""

    def __init__(self, spans: Sequence[Span], now: float) -> None:
        ends = sorted((span.start, now if span.end is None else max(span.start, span.end)) for span in spans)
        busy: list[list[float]] = []
        for start, end in ends:
            if busy and start <= busy[-1][1]:
                busy[-1][1] = max(busy[-1][1], end)
            else:
                busy.append([start, end])
        mean = sum(end - start for start, end in busy) / max(1, len(busy))
        idle = max(mean, 1.0)
        at, self.parts, self.cuts = 0.0, list[tuple[float, float, float]](), list[float]()
        for number, (start, end) in enumerate(busy):
            if number:
                gap = start - busy[number - 1][1]
                if gap > idle:
                    self.cuts.append(at + idle / 2)
                at += min(gap, idle)
            self.parts.append((start, end, at))
            at += end - start
        self.total = at or 1.0

    def x(self, time: float) -> float:
        part = next((p for p in reversed(self.parts) if p[0] <= time), self.parts[0])
        return self.scaled(part[2] + min(max(time, part[0]), part[1]) - part[0])

    def scaled(self, at: float) -> float:
        return _NAMES_WIDTH + at / self.total * (WIDTH - _NAMES_WIDTH - 8)


def spans(groups: Sequence[tuple[str, Sequence[Lane]]], now: float, ticks: Sequence[tuple[float, str]]) -> Picture:
    """A picture of instants as bars from requested to completed on one time axis, with a lane for each action, in
    groups with titles.

    `now` is where pending bars end, `ticks` are times with their texts. Where idle time is cut out there is a dotted
    line.
    """
    every = [span for _, lanes in groups for lane in lanes for span in lane.spans]
    if not every:
        return _svg(30, "no instants", [_text(0, 20, "no instants")])
    axis, y, drawn = _Axis(every, now), 0.0, list[str]()
    for title, lanes in groups:
        if title:
            drawn.append(_text(0, y + 16, title, size=13))
            y += _LANE_HEIGHT
        for lane in lanes:
            drawn += [_line(_NAMES_WIDTH, y + _LANE_HEIGHT, WIDTH, y + _LANE_HEIGHT), _text(0, y + 16, lane.name)]
            for span in lane.spans:
                left, right = axis.x(span.start), axis.x(now if span.end is None else span.end)
                box = (left, y + (_LANE_HEIGHT - _BAR_HEIGHT) / 2, max(right - left, _MIN_BAR), _BAR_HEIGHT)
                drawn.append(_rect(box, f"span {span.state}", _COLOURS.get(span.state, _BLUE), span.title))
            y += _LANE_HEIGHT
        y += 8
    drawn = [*(_line(axis.scaled(at), 0, axis.scaled(at), y, "cut", "1 4") for at in axis.cuts), *drawn]
    free, day = 0.0, ""
    for time, text in ticks:
        x = axis.x(time)
        if x < free or x > WIDTH - _TICK_ROOM / 2:
            continue
        date, _, clock = text.partition(" ")
        drawn.append(_text(x, y + 14, clock if date == day else text, size=11))
        free, day = x + _TICK_ROOM * (0.6 if date == day else 1), date
    text = f"{len(every)} instants" + (f" from {ticks[0][1]} to {ticks[-1][1]}" if ticks else "")
    return _svg(y + 22, text, drawn)


_RANGES_HEIGHT, _MAX_RANGES = 180, 600


def ranges(
    bounds: Sequence[tuple[float, float]], ends: tuple[str, str], label: str, titles: Sequence[str] = ()
) -> Picture:
    """A picture of the range of a column in each file, as a line from its least to its greatest value (both between 0
    and 1), in the order of their least values from top to bottom, with its title under the pointer. Where
    ranges lie above each other, a condition has to read many files."""
    ordered = sorted(zip(bounds, titles or [""] * len(bounds), strict=True))
    step_over = max(1, -(-len(ordered) // _MAX_RANGES))
    drawn = ordered[::step_over]
    step = _RANGES_HEIGHT / max(1, len(drawn))
    thick = max(0.6, min(6.0, step * 0.7))
    parts = [
        _rect((low * WIDTH, at * step, (high - low) * WIDTH, thick), "bar", _BLUE, title)
        for at, ((low, high), title) in enumerate(drawn)
    ]
    y = _RANGES_HEIGHT + 16
    parts += [
        _line(0, _RANGES_HEIGHT + 2, WIDTH, _RANGES_HEIGHT + 2),
        *(_text(0, y, ends[0]), _text(WIDTH, y, ends[1], "end")),
    ]
    return _svg(_RANGES_HEIGHT + 24, label, parts)
