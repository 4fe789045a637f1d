"""Line charts as SVG, without a plotting package: both axes logarithmic or plain, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

Points = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 130, 34, 46
_COLOURS = ("#d9542b", "#2b7bd9", "#3a9d5d", "#8a5bc7")
_MORE_COLOURS = ("#c79a2b", "#4aa8a8", "#b0477a", "#7a7a3a", "#555577", "#e0868a")
_GREY = "#808080"


@dataclass(frozen=True)
class Axis:
    """Values along one side; `ticks` are those that are written."""

    title: str
    ticks: Sequence[float]
    log: bool = False

    def at(self, value: float) -> float:
        """Where between the first tick (0) and the last (1) a value lies."""
        low, high, value = (math.log10(v) if self.log else v for v in (self.ticks[0], self.ticks[-1], value))
        return (value - low) / (high - low)


def chart(title: str, x: Axis, y: Axis, lines: Mapping[str, Points]) -> str:
    """The chart as the text of an SVG file. Each line has its name at its end."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="{_GREY}">',
        f"<title>{title}</title>",
        f'<text x="{_LEFT}" y="18" font-size="13">{title}</text>',
    ]
    parts.extend(_text(_across(x, tick), _HEIGHT - _BOTTOM + 16, f"{tick:,g}", "middle") for tick in x.ticks)
    for tick in y.ticks:
        height = _up(y, tick)
        parts.append(f'<path d="M{_LEFT} {height:.1f}H{_WIDTH - _RIGHT}" stroke="{_GREY}" stroke-opacity="0.3"/>')
        parts.append(_text(_LEFT - 6, height + 4, f"{tick:,g}", "end"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, x.title, "middle"))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">{y.title}</text>')
    for colour, (name, points) in zip(_COLOURS, lines.items(), strict=False):
        places = [(_across(x, a), _up(y, b)) for a, b in points]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.extend(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places)
        a, b = places[-1]
        parts.append(f'<text x="{a + 8:.1f}" y="{b + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _across(axis: Axis, value: float) -> float:
    return _LEFT + axis.at(value) * (_WIDTH - _LEFT - _RIGHT)


def _up(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - axis.at(value) * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def dots(title: str, x: Axis, rows: Mapping[str, Mapping[str, float]]) -> str:
    """A line for each name of `rows`, with a dot for each of its values; the names of the values are below."""
    left, step, top = 245, 24, 40
    names = list(dict.fromkeys(name for values in rows.values() for name in values))
    colours = dict(zip(names, cycle((*_COLOURS, *_MORE_COLOURS)), strict=False))
    width, bottom = 690, top + step * len(rows)
    height = bottom + 30 + 20 * -(-len(names) // 3)

    def across(value: float) -> float:
        return left + x.at(value) * (width - left - 40)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{_GREY}">',
        f"<title>{title}</title>",
        f'<text x="8" y="18" font-size="13">{title}</text>',
    ]
    for tick in x.ticks:
        parts.append(f'<path d="M{across(tick):.1f} {top - 8}V{bottom - 8}" stroke="{_GREY}" stroke-opacity="0.3"/>')
        parts.append(_text(across(tick), bottom + 8, f"{tick:,g}", "middle"))
    for number, (row, values) in enumerate(rows.items()):
        y = top + step * number + 4
        parts.append(_text(left - 14, y + 4, row, "end"))
        for name, value in values.items():
            parts.append(
                f'<circle cx="{across(value):.1f}" cy="{y}" r="5" fill="{colours[name]}" fill-opacity="0.85"/>'
            )
    for number, name in enumerate(names):
        a, y = 20 + 205 * (number % 3), bottom + 30 + 20 * (number // 3)
        parts.append(f'<circle cx="{a}" cy="{y}" r="5" fill="{colours[name]}"/>')
        parts.append(f'<text x="{a + 10}" y="{y + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])
