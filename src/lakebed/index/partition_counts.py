"""Bucket counts by partition path: rules, and the files in which real Hudi keeps them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from lakebed.config.features import BUCKET_FOLDER
from lakebed.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage

CONFIGS = f"{BUCKET_FOLDER}/partition_bucket_index_meta/configs"
FIRST = "0" * 14
_SUFFIX = ".hashing_config"
# What Java and Python read alike: no inline flags, named groups, possessive quantifiers, classes within classes.
_STRANGE = re.compile(r"\(\?(?![:=!])|[*+?}]\+|\\[pPGZzAQEhHvVRXkKbBuN]|\[[^\]]*(?:&&|\[)")

Rules = tuple[tuple[str, int], ...]


def parse_rules(text: str) -> Rules:
    """Hudi's `regex,count;regex,count`. Raises `InvalidOption` for another form, and for expressions that Java and
    Python would not read alike.

    >>> parse_rules("2026.*,8;^eu$,2")
    (('2026.*', 8), ('^eu$', 2))
    """
    rules: list[tuple[str, int]] = []
    for part in filter(None, (one.strip() for one in text.split(";"))):
        expression, comma, count = part.rpartition(",")
        if not comma or not count.strip().isdecimal() or not int(count) or "," in expression:
            raise InvalidOption(
                f"{part!r} is no rule for the bucket counts of partition paths",
                hint="Rules are regular expressions with a count each: '2026.*,8;eu,2'. An expression has no comma and"
                " no semicolon in it.",
                context={"rule": part},
            )
        _compiled(expression)
        rules.append((expression, int(count)))
    return tuple(rules)


def rules_text(rules: Rules) -> str:
    """The same as text."""
    return ";".join(f"{expression},{count}" for expression, count in rules)


def rule_of(path: str) -> str:
    """The expression that is found in this partition path alone."""
    # the two characters that rules are divided by, as Java and Python both write them otherwise
    escaped = re.sub(r"([^A-Za-z0-9_/=\-,;])", r"\\\1", path).replace(",", r"\x2c").replace(";", r"\x3b")
    return f"^{escaped}$"


@lru_cache(maxsize=256)
def _compiled(expression: str) -> re.Pattern[str]:
    try:
        strange = _STRANGE.search(expression)
        if strange is None:
            return re.compile(expression, re.ASCII)
        why = f"{strange.group()!r} means other things to Java and to Python"
    except re.error as cause:
        why = str(cause)
    raise InvalidOption(
        f"{expression!r} cannot be an expression for partition paths: {why}",
        hint="Use letters, '.', '*', '+', '?', classes, groups and alternatives.",
        context={"expression": expression},
    )


def count_in(rules: Rules, path: str) -> int | None:
    """The count of the first rule that is found in a partition path."""
    return next((count for expression, count in rules if _compiled(expression).search(path)), None)


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """One of real Hudi's files: the rules since an instant, and the count of all other partition paths."""

    instant: str
    rules: Rules
    count: int

    @property
    def path(self) -> str:
        """Where the file is."""
        return f"{CONFIGS}/{self.instant}{_SUFFIX}"

    def body(self) -> bytes:
        """As Hudi writes it."""
        known: Mapping[str, object] = {
            "expressions": rules_text(self.rules),
            "defaultBucketNumber": self.count,
            "rule": "regex",
            "version": 1,
            "instant": self.instant,
        }
        lines = ",\n".join(f"  {json.dumps(key)} : {json.dumps(value)}" for key, value in known.items())
        return f"{{\n{lines}\n}}".encode()


def read_counts(snapshot: Snapshot) -> PartitionCounts | None:
    """The newest rules of this view: of an instant that has completed. None where the table has no such file."""
    names = snapshot.storage.list_names(CONFIGS)
    instants = sorted((n.removesuffix(_SUFFIX) for n in names if n.endswith(_SUFFIX)), reverse=True)
    for instant in instants:
        if instant == FIRST or snapshot.is_visible(instant):
            return _read(snapshot.storage, instant)
    return None


def write_counts(storage: Storage, counts: PartitionCounts) -> None:
    """Write the file of an instant that is about to complete; it counts when that has."""
    storage.write(counts.path, counts.body())


def has_counts(storage: Storage) -> bool:
    """Whether the table has such files."""
    return any(name.endswith(_SUFFIX) for name in storage.list_names(CONFIGS))


def rules_for_all(count: int) -> Rules:
    """One rule that gives all partition paths the same count, for tables that have such files."""
    return ((".*", count),)


def forget_counts(storage: Storage, instant: str) -> None:
    """Remove the file of an instant that is undone."""
    storage.delete(f"{CONFIGS}/{instant}{_SUFFIX}")


def _read(storage: Storage, instant: str) -> PartitionCounts:
    path = f"{CONFIGS}/{instant}{_SUFFIX}"
    try:
        found = json.loads(storage.read(path))
        rule, count = str(found["rule"]), int(found["defaultBucketNumber"])
        expressions = str(found["expressions"])
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFile(
            f"{path} cannot be read: {cause}", hint="Restore the file from a copy.", context={"path": path}
        ) from cause
    if rule.lower() != "regex":
        raise UnsupportedFeature(
            f"{path} has rules of the kind {rule!r}, of which lakebed knows regex alone",
            hint="Write the table with the engine that made them.",
            context={"feature": "bucket counts by partition", "rule": rule},
        )
    return PartitionCounts(instant, parse_rules(expressions), count)
