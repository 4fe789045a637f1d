"""Values that columns get from the table: defaults for columns that the rows of a write lack, and columns that are
generated from others. Each is an expression in a property of its own."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.expressions.base import quote_name
from lakebed.model import DEFAULT_PREFIX, GENERATED_PREFIX
from lakebed.properties.checks import Check

# Letters of a column that go into the name of its check.
_NAME_LETTERS = 100
_END = "\n)"


def expressions_in(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The expressions that these table properties record under a prefix, by column, in the order of the columns' names.

    >>> expressions_in({"lakebed.default.fare": "0", "hoodie.table.name": "trips"}, "lakebed.default.")
    {'fare': '0'}
    """
    return {key.removeprefix(prefix): properties[key] for key in sorted(properties) if key.startswith(prefix)}


def properties_of(defaults: Mapping[str, str], generated: Mapping[str, str]) -> dict[str, str]:
    """The table properties that record these expressions.

    >>> properties_of({"fare": "0"}, {"day": "CAST(ts AS DATE)"})
    {'lakebed.default.fare': '0', 'lakebed.generated.day': 'CAST(ts AS DATE)'}
    """
    return {
        **{DEFAULT_PREFIX + name: text for name, text in defaults.items()},
        **{GENERATED_PREFIX + name: text for name, text in generated.items()},
    }


def generated_checks(generated: Mapping[str, str]) -> tuple[Check, ...]:
    """A check for each generated column: its value is that of its expression.

    >>> print(generated_checks({"day": "CAST(ts AS DATE)"})[0])
    day_generated: `day` <=> (CAST(ts AS DATE)) (reject)
    """
    return tuple(
        # the line break keeps a comment in the text from the parenthesis
        Check(
            f"{name[:_NAME_LETTERS]}_generated",
            f"{quote_name(name)} <=> ({text}{_END if '--' in text else ')'}",
            generates=name,
        )
        for name, text in generated.items()
    )
