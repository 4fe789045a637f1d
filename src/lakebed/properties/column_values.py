"""Values that columns get from the table: defaults for columns that the rows of a write lack, and columns that are
generated from others. Each is an expression in a property of its own."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.expressions.base import quote_name
from lakebed.model import DEFAULT_PREFIX, GENERATED_PREFIX
from lakebed.properties.checks import Check, plain_name


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
    checks: dict[str, Check] = {}
    for column, text in generated.items():
        name = number = f"{plain_name(column)[:100]}_generated"
        while name in checks:
            name = f"{number}_{len(checks)}"
        # the line break keeps a comment in the text from the parenthesis
        end = "\n)" if "--" in text else ")"
        checks[name] = Check(name, f"{quote_name(column)} <=> ({text}{end}", generates=column)
    return tuple(checks.values())
