"""The one table of options: every key, its default, older names, and what lakebed does with it; values from text to
what a setting takes, or a clear refusal.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data
from typing import Any, Literal, cast

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.secrets import masked

# Read with the module: later the process may have no descriptor left for it.
_TABLE = (get_data("lakebed.config", "options.tsv") or b"").decode()

Verdict = Literal["implemented", "refused", "ignored"]
Remembered = Literal["", "write", "service", "creation"]
MergeMode = Literal["event_time", "commit_time", "custom"]


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table of options.

    `default` is real Hudi's (lakebed's own for `lakebed.*`). `values` names the kind of value (`bool`, `int`,
    `list`, ...) or the accepted words; for a refused option the words that ask for what lakebed does anyway.
    `refuses` holds words that real Hudi knows and lakebed does not do, `*` for any other. `setting` is the
    field the value ends in. `remembered` says what of a table keeps the option: "write" and "service" settings are
    recorded in its properties, for writes and for table services; "creation" ones are given to a new table, which has
    them as properties of its own, as indexes, or not at all; none are those of one read or write.
    """

    key: str
    default: str
    aliases: tuple[str, ...]
    verdict: Verdict
    values: str
    refuses: tuple[str, ...]
    setting: str
    remembered: Remembered
    note: str

    @property
    def words(self) -> tuple[str, ...]:
        """The accepted words, if `values` lists words."""
        return tuple(self.values.split("|")) if "|" in self.values or self.values[:1].isupper() else ()


def _row(line: str) -> Option:
    key, default, aliases, verdict, values, refuses, setting, remembered, note = line.split("\t")
    return Option(
        key=key,
        default=default,
        aliases=tuple(a for a in aliases.replace(" ", "").split(",") if a),
        verdict=cast(Verdict, verdict),
        values=values,
        refuses=tuple(refuses.split("|")) if refuses else (),
        setting=setting,
        remembered=cast(Remembered, remembered),
        note=note,
    )


@cache
def options() -> dict[str, Option]:
    """All known options by key, in the order of the table.

    >>> options()["hoodie.index.type"].verdict
    'implemented'
    """
    return {row.key: row for row in map(_row, _TABLE.splitlines()[1:])}


@cache
def _names() -> dict[str, str]:
    """The key of each name that an option has; a key's own row wins over an alias of the same text."""
    aliases = {alias: row.key for row in options().values() for alias in row.aliases}
    return aliases | {key: key for key in options()}


def canonical(name: str) -> str | None:
    """The key of an option's name or older name; None for an unknown name.

    >>> canonical("hoodie.cleaner.commits.retained")
    'hoodie.clean.commits.retained'
    """
    return _names().get(name)


def nearest(name: str) -> str | None:
    """The known name most like `name`, or that ends in it; None if none is near.

    >>> nearest("hoodie.indx.type"), nearest("evolution")
    ('hoodie.index.type', 'lakebed.write.evolution')
    """
    if ends := [candidate for candidate in _names() if candidate.endswith(f".{name}")]:
        return min(ends, key=lambda candidate: (len(candidate), candidate))
    from difflib import get_close_matches

    matches = get_close_matches(name, _names(), n=1, cutoff=0.7)
    return matches[0] if matches else None


# How keys of the caller's own making end whose values are secrets.
_CREDENTIAL = re.compile(
    r"(password|passwd|secret|(secret|access|account|private|api)[._-]?key|(session|sas|access)[._-]?token|credentials?"
    r"|custom[._-]?headers)$",
    re.IGNORECASE,
)
# Values that name a way to delete, for which there is another one.
_INSTEAD = {
    "EmptyHoodieRecordPayload": "It deletes the rows of the job: give hoodie.datasource.write.operation=delete.",
    "GlobalDeleteKeyGenerator": (
        "It deletes keys wherever they are: give the key generator of the table and a global index"
        " (hoodie.index.type=GLOBAL_BLOOM), or call t.delete(keys), which looks in every partition path."
    ),
}
MERGE_MODES: dict[str, MergeMode] = {
    "EVENT_TIME_ORDERING": "event_time",
    "COMMIT_TIME_ORDERING": "commit_time",
    "CUSTOM": "custom",
}
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"
STRATEGIES: dict[str, MergeMode] = {
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": "event_time",
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": "commit_time",
}
CONCURRENCY_MODES = {
    "SINGLE_WRITER": "single",
    "OPTIMISTIC_CONCURRENCY_CONTROL": "optimistic",
    "NON_BLOCKING_CONCURRENCY_CONTROL": "non_blocking",
}
TABLE_TYPES = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}
PAYLOADS: dict[str, MergeMode] = {
    "DefaultHoodieRecordPayload": "event_time",
    "EventTimeAvroPayload": "event_time",
    "OverwriteWithLatestAvroPayload": "commit_time",
    "OverwriteNonDefaultsWithLatestAvroPayload": "commit_time",
    "PartialUpdateAvroPayload": "event_time",
    "AWSDmsAvroPayload": "commit_time",
    "MySqlDebeziumAvroPayload": "event_time",
    "PostgresDebeziumAvroPayload": "event_time",
}
HUDI_PACKAGE = "org.apache.hudi."
_MODELS = "org.apache.hudi.common.model."
# Bundles of Hudi before 1.1 have this class twice.
_OTHER_NAMES = {"AWSDmsAvroPayload": "org.apache.hudi.payload.AWSDmsAvroPayload"}
# Below version 9 all others mean a merge of their own.
PLAIN_PAYLOADS = ("DefaultHoodieRecordPayload", "EventTimeAvroPayload", "OverwriteWithLatestAvroPayload")
KEY_GENERATORS = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
}
LIST_FORMATS = ("delta", "iceberg")
"""The formats whose lists of files a table can be published as."""
VERSIONS = {"6": 6, "8": 8, "9": 9, "SIX": 6, "EIGHT": 8, "NINE": 9}


def _int(text: str) -> int:
    number = int(text.replace("_", ""))
    if not -(1 << 63) <= number < 1 << 63:  # a long of Java
        raise ValueError
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _positive(text: str) -> int:
    number = _int(text)
    if number <= 0:
        raise ValueError
    return number


def _level(text: str) -> int:
    number = _int(text)
    if not -100 <= number <= 22:
        raise ValueError
    return number


def _bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _formats(text: str) -> tuple[str, ...]:
    names = tuple(name.lower() for name in _list(text))
    if not {*names} <= {*LIST_FORMATS}:
        raise ValueError(text)
    return tuple(dict.fromkeys(names))


def _millis(text: str) -> float:
    return _positive(text) / 1000


_KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "bool": (_bool, "true or false"),
    "int": (_int, "a whole number of 64 bits"),
    "level": (_level, "a level of zstd from -100 to 22"),
    "size": (_int, "a number of bytes"),
    "positive": (_positive, "a whole number above 0 and of 64 bits"),
    "float": (_float, "a finite number"),
    "millis": (_millis, "a number of milliseconds above 0"),
    "list": (_list, "names separated by commas"),
    "formats": (_formats, "formats separated by commas: delta, iceberg"),
    "text": (str, "text"),
}


def simple_name(text: str) -> str:
    """A Java class name without its package; any other text unchanged."""
    return text.rpartition(".")[2] if text.startswith(("org.", "com.", "io.")) else text


def payload_class(text: str) -> str | None:
    """The full name of one of Hudi's payload classes, given short or with a package in which Hudi has it; None for any
    other class, whatever its short name.

    >>> payload_class("AWSDmsAvroPayload"), payload_class("org.apache.hudi.payload.AWSDmsAvroPayload")
    ('org.apache.hudi.common.model.AWSDmsAvroPayload', 'org.apache.hudi.common.model.AWSDmsAvroPayload')
    >>> payload_class("com.example.AWSDmsAvroPayload")
    """
    requested = text.strip()
    name = simple_name(requested)
    if name not in PAYLOADS:
        return None
    full_name = f"{_MODELS}{'debezium.' if 'Debezium' in name else ''}{name}"
    return full_name if requested in (name, full_name, _OTHER_NAMES.get(name)) else None


def generator_class(text: str) -> str:
    """The short name of one of Hudi's classes of key generators; the Avro variants make the same keys. Empty for a
    class of another package.

    >>> generator_class("org.apache.hudi.keygen.ComplexAvroKeyGenerator"), generator_class("com.example.Own")
    ('ComplexKeyGenerator', '')
    """
    name = simple_name(text)
    is_another = name != text and not text.startswith(HUDI_PACKAGE)
    return "" if is_another else name.replace("AvroKeyGenerator", "KeyGenerator")


def key_generator(text: str) -> str | None:
    """The enum text of a key generator that a job names by type or by class; None if lakebed does not have the
    generator.

    >>> key_generator("org.apache.hudi.keygen.ComplexAvroKeyGenerator"), key_generator("complex")
    ('COMPLEX', 'COMPLEX')
    >>> key_generator("com.example.ComplexKeyGenerator")
    """
    name = generator_class(text)
    plain = name.upper().removesuffix("_AVRO")
    return KEY_GENERATORS.get(name) or (plain if plain in KEY_GENERATORS.values() else None)


def split_partition_types(fields: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and kinds of a custom key generator's partition fields.

    >>> split_partition_types(["city:simple", "at:TIMESTAMP"])
    (('city', 'at'), ('SIMPLE', 'TIMESTAMP'))
    """
    pairs = [field.partition(":") for field in fields]
    return tuple([name for name, _, _ in pairs]), tuple([kind.upper() or "SIMPLE" for _, _, kind in pairs])


def _payload(text: str) -> str | None:
    return payload_class(text)


def _strategy(text: str) -> str | None:
    """The id of a merge strategy, a built-in one or the user's; None if the text is not an id."""
    try:
        return str(uuid.UUID(text.strip()))
    except ValueError:
        return None


_SYNC_TOOLS = frozenset({"HiveSyncTool", "AwsGlueCatalogSyncTool"})


def _tools(text: str) -> tuple[str, ...] | None:
    names = tuple(simple_name(name) for name in _list(text))
    return names if {*names} <= _SYNC_TOOLS else None


_MAPPED: dict[str, Callable[[str], Any]] = {
    "tools": _tools,
    "keygen": key_generator,
    "payload": _payload,
    "strategy": _strategy,
    "version": lambda text: VERSIONS.get(text.upper()),
}


PROPOSED = {"hoodie.index.type": {"bucket_hash_index": "BUCKET"}}
"""Values as the proposal of an option names them (RFC-29), each with the one that Hudi has."""


def parse_value(option: Option, text: str) -> Any:
    """The setting's value for `text`. Raises `InvalidOption` for an invalid text and `UnsupportedFeature` for a value
    that real Hudi supports and lakebed does not."""
    if option.values in _MAPPED:
        value = _MAPPED[option.values](text)
        if value is None:
            raise refusal(option, text)
        return value
    if option.words:
        return _word(option, text)
    kind, expected = _KINDS[option.values]
    try:
        return kind(text.strip() if option.values != "text" else text)
    except (ValueError, KeyError):
        raise InvalidOption(
            f"{option.key}={text!r} is not {expected}",
            hint=f"real Hudi's default is {option.default}" if option.default else "",
            context={"option": option.key, "value": text, "expected": expected},
        ) from None


def _word(option: Option, text: str) -> str:
    requested = simple_name(text).lower()
    proposed = PROPOSED.get(option.key, {}).get(requested, "").lower()
    for word in option.words:
        if word.lower() in (requested, proposed):
            return word
    if "*" in option.refuses or requested in (word.lower() for word in option.refuses):
        raise refusal(option, text)
    raise InvalidOption(
        f"{option.key}={text!r} is not one of {', '.join(option.words)}",
        context={"option": option.key, "value": text, "expected": list(option.words)},
    )


def asks_for_nothing(option: Option, text: str) -> bool:
    """Whether the value of a refused option asks for lakebed's only behaviour: empty, off, or the accepted word.

    >>> from lakebed.config.option_table import options
    >>> asks_for_nothing(options()["hoodie.clean.multiple.enabled"], "false")
    True
    """
    value = simple_name(text.strip())
    if not value:
        return True
    if option.values == "off":
        return value.lower() == "false" or value == simple_name(option.default)
    return value.lower() in (word.lower() for word in option.values.split("|"))


def is_credential(key: str) -> bool:
    """Whether a key of commit metadata, which is of the caller's making, is that of a secret.

    >>> is_credential("_db_password"), is_credential("fs.s3a.secret.key"), is_credential("_checkpoint_key")
    (True, True, False)
    """
    return _CREDENTIAL.search(key) is not None


def redacted(key: str, text: str) -> str:
    """An option's value for messages: a secret is hidden, also in a URL.

    >>> redacted("hoodie.aws.secret.key", "abc"), redacted("hoodie.index.type", "BLOOM")
    ('***', 'BLOOM')
    """
    return str(masked(text, key))


def exposed(name: str) -> InvalidOption:
    """The error for a credential that would be written into commit metadata."""
    return InvalidOption(
        f"{name} is a credential, and every reader of the table can read commit metadata",
        hint="credentials of storage belong into storage_options or the environment; keep others out of options",
        context={"option": name},
    )


def recorded_credential(key: str, text: str) -> InvalidOption:
    """The error for a credential that would be written into the table's properties."""
    return InvalidOption(
        f"{key}={redacted(key, text)} would record a credential, and every reader of the table can read its properties",
        hint="Take it out. The credentials of catalogs and of storage come from the environment.",
        context={"option": key},
    )


def refusal(option: Option, text: str) -> UnsupportedFeature:
    """The error for a value that lakebed does not support; it names the accepted ones."""
    text = redacted(option.key, text)
    choices = () if option.values == "off" else tuple(w for w in option.values.split("|") if w)
    accepted = {
        "keygen": ", ".join(KEY_GENERATORS),
        "tools": ", ".join(sorted(_SYNC_TOOLS)),
        "payload": ", ".join(PAYLOADS),
        "strategy": "a UUID",
        "version": "6, 8, 9",
    }.get(option.values, ", ".join(choices))
    way_out = f"take {accepted}" if accepted else "leave the option out"
    note = option.note and f"{option.note}{';' if ':' in option.note else ':'} "
    return UnsupportedFeature(
        f"{option.key}={text} is not supported",
        hint=_INSTEAD.get(simple_name(text), f"{note}{way_out}"),
        context={"option": option.key, "value": text, "accepted": accepted},
    )
