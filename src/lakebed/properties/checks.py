"""The checks that a table records: conditions that its rows have to fulfil, one property for each; and the error for
rows that break them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CheckFailed, InvalidOption, UnsupportedFeature
from lakebed.model import CHECK_PREFIX
from lakebed.wording import Printed, count_text

OnFailure = Literal["reject", "quarantine", "warn"]
CheckedOn = Literal["row", "table"]
# So many rows of each check are named.
EXAMPLES = 5
_MAX_TEXT = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, repr=False)
class Check(Printed):
    """A check of a table: its `name`, and the `condition`, which is Spark SQL.

    `on` is what the condition is about: "row" for the columns of one row, "table" for aggregates of all rows.
    `on_failure` is what a write does with rows for which the condition is false: it raises `CheckFailed` ("reject"),
    writes them to the table of rejects and the other rows to the table ("quarantine"), or writes all and warns
    ("warn"). `generates` is the column whose expression the check compares with its value; empty for other checks.

    >>> Check("positive", "fare >= 0").on_failure
    'reject'
    """

    name: str
    condition: str
    on: CheckedOn = "row"
    on_failure: OnFailure = "reject"
    generates: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidOption(
                f"{self.name!r} is no name of a check",
                hint="take letters, digits and underscores, such as fare_is_positive",
                context={"argument": "name"},
            )
        for argument, value, values in (
            ("on", self.on, get_args(CheckedOn)),
            ("on_failure", self.on_failure, get_args(OnFailure)),
        ):
            if value not in values:
                raise InvalidOption(
                    f"{argument}={value!r} is unknown for a check",
                    hint=f"take one of {', '.join(map(repr, values))}",
                    context={"argument": argument},
                )
        if self.on == "table" and self.on_failure == "quarantine":
            raise InvalidOption(
                'a check with on="table" cannot quarantine: no single row breaks it, so there is none to put into the'
                " table of rejects",
                hint='take on_failure="reject" or "warn"',
                context={"argument": "on_failure"},
            )

    @property
    def key(self) -> str:
        """The key of the table property that records the check."""
        return CHECK_PREFIX + self.name

    @property
    def text(self) -> str:
        """The value of the table property that records the check."""
        return json.dumps({name: value for name, value in self.to_dict().items() if name != "name"})

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {name: value for name, value in asdict(self).items() if value or name != "generates"}

    def __str__(self) -> str:
        return f"{self.name}: {self.condition} ({self.on_failure})"


def checks_in(properties: Mapping[str, str]) -> tuple[Check, ...]:
    """The checks that these table properties record, by name. Raises `UnsupportedFeature` for one that cannot be
    read.

    >>> checks_in({"lakebed.check.positive": '{"condition": "fare >= 0"}'})[0].condition
    'fare >= 0'
    """
    return tuple(_check(key, properties[key]) for key in sorted(properties) if key.startswith(CHECK_PREFIX))


def _check(key: str, text: str) -> Check:
    try:
        return Check(key.removeprefix(CHECK_PREFIX), **json.loads(text))
    except (ValueError, TypeError, InvalidOption) as error:
        raise UnsupportedFeature(
            f"the table property {key} is no check that this version of lakebed reads: {text}",
            hint="update lakebed, or drop the check: t.checks.drop(name)",
            context={"feature": "checks", "option": key},
        ) from error


@dataclass
class BrokenRows:
    """The rows that break checks of a table, as they are found: the number for each check, and the first of them."""

    table: str
    counts: dict[str, int] = field(default_factory=dict[str, int])
    examples: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    conditions: dict[str, str] = field(default_factory=dict[str, str])

    def note(self, check: Check, rows: pa.Table, broken: npt.NDArray[np.bool_], first: int | None) -> None:
        """Count the `broken` rows of a check. `first` is the position of the first of the `rows` in the data; None if
        it is unknown."""
        count = int(broken.sum())
        if not count:
            return
        name = check.name
        before = self.counts.get(name, 0)
        self.counts[name] = before + count
        self.conditions[name] = check.condition
        at = np.flatnonzero(broken)[: max(0, EXAMPLES - before)]
        for number, row in zip(at.tolist(), rows.take(pa.array(at)).to_pylist(), strict=True):
            position = None if first is None else first + number
            self.examples.append({"check": name, "position": position, "row": row})

    def error(self, of: int | None = None) -> CheckFailed:
        """The error for these rows, which are among `of` rows (None: an unknown number)."""

        def counted(count: int) -> str:
            return count_text(count, "row") if of in (None, count) else f"{count:,} of {count_text(of, 'row')}"

        named = [f"{name} ({self.conditions[name]}): {counted(count)}" for name, count in self.counts.items()]
        first = next(iter(self.examples), None)
        at = "" if first is None or first["position"] is None else f" is row {first['position']},"
        example = "" if first is None else f"; the first{at or ' is'} {_text(first['row'])}"
        return CheckFailed(
            f"rows break checks of table {self.table!r}: {', '.join(named)}{example}",
            hint="Nothing of the write is visible. Correct these rows or leave them out; t.checks lists the checks.",
            context={"table": self.table, "checks": self.counts, "rows": self.examples, "conditions": self.conditions},
        )


def _text(row: Mapping[str, Any]) -> str:
    text = str(dict(row))
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def joined(errors: Sequence[CheckFailed]) -> CheckFailed:
    """One error for those of several tasks, with the counts of all.

    >>> facts = {"table": "t", "conditions": {"a": "x > 0"}}
    >>> joined([CheckFailed("", context={**facts, "checks": {"a": count}}) for count in (1, 2)]).checks
    {'a': 3}
    """
    if len(errors) == 1:
        return errors[0]
    total = BrokenRows(str(errors[0].context.get("table", "")))
    named: dict[str, int] = {}
    for error in errors:
        total.conditions |= error.conditions
        for name, count in error.checks.items():
            total.counts[name] = total.counts.get(name, 0) + count
        for row in error.rows:
            named[row["check"]] = named.get(row["check"], 0) + 1
            if named[row["check"]] <= EXAMPLES:
                total.examples.append(row)
    return total.error()
