"""Options: a job's `hoodie.*` and `lakebed.*` keys, checked against the table of options and the table's own
properties, turned into settings; or a verdict for each before anything runs.

To add an option: one line in `options.tsv`, one field in `settings.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Literal, cast

from lakebed.config.collected import CollectedSettings, Options
from lakebed.config.option_table import (
    PROPOSED,
    Option,
    asks_for_nothing,
    canonical,
    exposed,
    is_credential,
    nearest,
    options,
    parse_value,
    recorded_credential,
    redacted,
    refusal,
    simple_name,
)
from lakebed.config.settings import (
    ClusteringSettings,
    CompactionSettings,
    IndexSettings,
    ReadSettings,
    SparkSettings,
    TableSettings,
    WriteSettings,
)
from lakebed.config.streamer import StreamerProperty, is_streamer_job, nearest_property, property_of, short_name
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.secrets import masked_text
from lakebed.sharing import is_first_time

__all__ = [
    "ClusteringSettings",
    "CompactionSettings",
    "IndexSettings",
    "Options",
    "ReadSettings",
    "SparkSettings",
    "TableSettings",
    "WriteSettings",
    "check_table_options",
    "compaction_settings",
    "creation_properties",
    "resolve_options",
    "service_properties",
    "service_settings",
    "table_options",
    "with_table_settings",
]
_log = logging.getLogger("lakebed.options")

CHECKPOINT_KEYS = frozenset(
    [
        "streamer.checkpoint.key.v2",
        "streamer.checkpoint.reset.key.v2",
        "deltastreamer.checkpoint.key",
        "deltastreamer.checkpoint.reset_key",
        "deltastreamer.checkpoint.ignore_key",
        "lakebed.ingest.checkpoint",
    ]
)
"""Keys of checkpoints, Hudi Streamer's and ours: options of a write that go to its commit metadata under any prefix."""

# Notes of a write are options of these names (`config/commit_notes.py`).
_NOTES = ("lakebed.message", "lakebed.metadata.", "lakebed.operation")

# Names of RFC-29, which real Hudi never had.
_PROPOSED_NAMES = frozenset({"hoodie.hash.index.bucket.num", "hoodie.datasource.write.indexkey.field"})

# Remembered where it is false: an index that is asked for is made once, and does not return after it was dropped.
_COLUMN_STATS = "hoodie.metadata.index.column.stats.enable"
_ROW_ADDRESSES = "lakebed.row.addresses"
# With the value "ignore" a job that asks for catalog sync by Hudi's options runs without it.
CATALOG_SYNC = "lakebed.catalog.sync"
_SYNC_KEYS = ("hoodie.datasource.hive_sync.", "hoodie.datasource.meta.sync.", "hoodie.meta.sync.")
_CALLBACK_ON = "hoodie.write.commit.callback.on"
# What an optional package is needed for: a setting, a value of it, the package and the extra that installs it.
_EXTRAS = (
    ("lock.provider", "ZookeeperBasedLockProvider", "kazoo", "zookeeper"),
    ("lock.provider", "DynamoDBBasedLockProvider", "boto3", "dynamodb"),
    ("lock.provider", "HiveMetastoreBasedLockProvider", "pymetastore", "hive"),
    ("index.type", "HBASE", "kazoo", "hbase"),
    ("callback.kind", "HoodieWriteCommitKafkaCallback", "confluent_kafka", "kafka"),
    ("hbase.transport", "thrift", "happybase", "hbase"),
    ("catalog.hive", "true", "pymetastore", "hive"),
)
_HBASE_TRANSPORT = "lakebed.index.hbase.transport"
# To run a service within the write and to leave it to another job are two answers to one question.
_EITHER = (
    {"hoodie.compact.inline", "hoodie.compact.schedule.inline"},
    {"hoodie.clustering.inline", "hoodie.clustering.schedule.inline"},
)
_COMPACTION_DUE = "lakebed.compact.due"
# Hudi's options of when a compaction is due. A job that sets the option above leaves out those of the table.
_COMPACTION_TRIGGER = (
    "hoodie.compact.inline.trigger.strategy",
    "hoodie.compact.inline.max.delta.commits",
    "hoodie.compact.inline.max.delta.seconds",
)


def resolve_options(option_values: Mapping[str, Any] | None = None) -> Options:
    """The settings from options; values may be text, booleans, numbers or lists.

    Raises InvalidOption for an unknown key (naming the nearest), a value of the wrong kind, or two keys that
    have different values; UnsupportedFeature for what lakebed does not do. Keys that change nothing here are
    accepted and logged once a process.

    >>> resolve_options({"hoodie.parquet.small.file.limit": 0}).write.max_small_file_size
    0
    >>> resolve_options({"hoodie.index.typ": "BUCKET"})
    Traceback (most recent call last):
    lakebed.errors.InvalidOption: unknown option hoodie.index.typ. Did you mean hoodie.index.type?
    """
    try:
        pairs = dict(option_values or {})
    except (TypeError, ValueError) as cause:
        raise InvalidOption(
            f"options of type {type(option_values).__name__}", hint="give a dict of names and values"
        ) from cause
    return _resolved(tuple([(str(name), _text(value)) for name, value in pairs.items() if value is not None]))


@lru_cache(maxsize=64)
def _resolved(texts: tuple[tuple[str, str], ...]) -> Options:
    """The settings in these option texts. Cached, since a write and a table's services use them several times, and most
    calls have no options."""
    problems: list[LakebedError] = []
    option_texts, extra = _canonical_keys(dict(texts), problems)
    settings = CollectedSettings()
    without_sync = option_texts.get(CATALOG_SYNC, "").strip().lower() == "ignore"
    for key, text in option_texts.items():
        try:
            _take(settings, options()[key], text, ignored=without_sync and _is_of_sync(options()[key]))
        except LakebedError as problem:
            problems.append(problem)
    if problems:
        raise all_in_one(problems)
    return settings.options(option_texts, extra)


def one_option(name: str, value: Any) -> dict[str, str]:
    """The text of one option by its canonical key. Raises the errors of `resolve_options` for a wrong option."""
    problems: list[LakebedError] = []
    option_texts, _ = _canonical_keys({name: _text(value)}, problems)
    if problems:
        raise all_in_one(problems)
    for key, text in option_texts.items():
        _take(CollectedSettings(), options()[key], text, ignored=False)
    return option_texts


def _take(settings: CollectedSettings, option: Option, text: str, *, ignored: bool) -> None:
    """Make an implemented option a setting; log or refuse any other. With `ignored` it is logged."""
    if ignored or option.verdict == "ignored":
        _log_once(option, text, _WITHOUT_SYNC if ignored else option.note)
    elif option.verdict == "implemented":
        value = parse_value(option, text)
        if option.setting:
            settings.put(option, value)
    elif not asks_for_nothing(option, text):
        raise refusal(option, text)


def _is_of_sync(option: Option) -> bool:
    """Whether the option is one of Hudi's for catalog sync."""
    return option.key.startswith(_SYNC_KEYS)


def all_in_one(problems: Sequence[LakebedError]) -> LakebedError:
    """One error for all of several: a job is refused once, not once for each option."""
    if len(problems) == 1:
        return problems[0]
    kind = InvalidOption if any(isinstance(p, InvalidOption) for p in problems) else UnsupportedFeature
    lines = [f"  {n}. {problem}" for n, problem in enumerate(problems, 1)]
    return kind(
        "\n".join([f"{len(problems)} options cannot be taken:", *lines]),
        context={"problems": [{"message": p.message, "hint": p.hint, **p.context} for p in problems]},
    )


def service_properties(explicit: Mapping[str, str]) -> dict[str, str]:
    """The options of a job (`Options.explicit`) that configure table services and the writing of files, as a new table
    records them: under names of lakebed, since real Hudi refuses a job with an option that differs from a property
    under Hudi's name.

    Raises `InvalidOption` for a value with a credential.

    >>> service_properties({"hoodie.compact.inline": "true", "hoodie.table.name": "trips"})
    {'lakebed.compact.inline': 'true'}
    """
    keys = _service_keys()
    for key, text in explicit.items():
        if key in keys and masked_text(text) != text:
            raise recorded_credential(key, text)
    asks = {key for key, text in explicit.items() if key == _COLUMN_STATS and text.lower() == "true"}
    return {keys[key]: text for key, text in explicit.items() if key in keys and key not in asks}


def creation_properties(explicit: Mapping[str, str]) -> dict[str, str]:
    """The properties that a new table records: those of `service_properties`, and that its base files have row
    addresses, unless the options state it.

    >>> creation_properties({"hoodie.compact.inline": "true"})
    {'lakebed.row.addresses': 'true', 'lakebed.compact.inline': 'true'}
    """
    return {_ROW_ADDRESSES: "true", **service_properties(explicit)}


def check_table_options(job_options: Options) -> None:
    """Raise `InvalidOption` for options of one read or write: a table does not record them.

    >>> check_table_options(resolve_options({"hoodie.parquet.max.file.size": 1 << 20}))
    >>> check_table_options(resolve_options({"as.of.instant": "20260101000000000"}))
    Traceback (most recent call last):
    lakebed.errors.InvalidOption: as.of.instant is an option of each read or write, and no property of a table. ...
    """
    problems: list[LakebedError] = [
        InvalidOption(
            f"{key} is an option of each read or write, and no property of a table",
            hint=f"give it to the verb: options={{'{key}': ...}}",
            context={"option": key},
        )
        for key in (*job_options.explicit, *job_options.write.extra_metadata)
        if key not in options() or _is_of_a_verb(options()[key])
    ]
    if problems:
        raise all_in_one(problems)


def table_options(option_values: Mapping[str, Any]) -> dict[str, str]:
    """The options of a job that a table may record, by their keys: without those of one read or write.

    >>> table_options({"hoodie.table.name": "trips", "hoodie.datasource.write.operation": "insert"})
    {'hoodie.table.name': 'trips'}
    """
    explicit = resolve_options(option_values).explicit
    return {key: text for key, text in explicit.items() if key in options() and not _is_of_a_verb(options()[key])}


def _is_of_a_verb(option: Option) -> bool:
    return option.verdict == "implemented" and bool(option.setting) and not option.remembered


@cache
def _service_keys() -> dict[str, str]:
    """The options that a table of lakebed records, each with the name under which it does."""
    keys = (key for key, option in options().items() if option.remembered in ("write", "service"))
    return {key: key.replace("hoodie.", "lakebed.", 1) for key in keys}


@cache
def _write_keys() -> dict[str, str]:
    """The options that configure a write and that a table records, each with its key in the table's properties."""
    return {key: name for key, name in _service_keys().items() if options()[key].remembered == "write"}


def _recorded(keys: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """The texts that a table records of these options, which are given with their keys in the table's properties."""
    under_option = {key: properties[key] for key in keys if key in properties}
    return under_option | {key: properties[stored_key] for key, stored_key in keys.items() if stored_key in properties}


def with_table_settings(
    job_options: Options, properties: Mapping[str, str], *, defaults: Mapping[str, str] | None = None
) -> Options:
    """A job's options with the write settings that the table records, and `defaults` for settings that neither has.

    >>> with_table_settings(resolve_options({}), {"lakebed.parquet.small.file.limit": "7"}).write.max_small_file_size
    7
    """
    texts = _recorded(_write_keys(), properties)
    stored = {key: text for key, text in texts.items() if key not in job_options.explicit}
    more = {**{k: v for k, v in (defaults or {}).items() if k not in job_options.explicit}, **stored}
    if not more:
        return job_options
    write, extra = _resolved(tuple({**more, **job_options.explicit}.items())).write, job_options.write.extra_metadata
    return replace(job_options, write=write if write.extra_metadata == extra else replace(write, extra_metadata=extra))


def service_settings(explicit: Mapping[str, str], properties: Mapping[str, str]) -> Options:
    """The settings of a table's services: from a job's options (`Options.explicit`), otherwise from those of the table.

    >>> service_settings({}, {"lakebed.clean.commits.retained": "3"}).cleaning.commits
    3
    """
    keys = _service_keys()
    stored = _recorded(keys, properties)
    requested = {key: text for key, text in explicit.items() if key in keys}
    for either in _EITHER:
        if requested.keys() & either:
            stored = {key: text for key, text in stored.items() if key not in either}
    if _COMPACTION_DUE in requested:
        stored = {key: text for key, text in stored.items() if key not in _COMPACTION_TRIGGER}
    return _resolved(tuple({**stored, **requested}.items()))


def compaction_settings(explicit: Mapping[str, str], properties: Mapping[str, str]) -> CompactionSettings:
    """The settings of a table's compaction; see `service_settings`.

    >>> compaction_settings({}, {"lakebed.compact.inline.max.delta.commits": "3"}).delta_commits
    3
    """
    return service_settings(explicit, properties).compaction


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, cast("Sequence[object]", value)))
    return str(value)


def _canonical_keys(texts: Mapping[str, str], problems: list[LakebedError]) -> tuple[dict[str, str], dict[str, str]]:
    """Known options by canonical key, and the keys that belong in the commit metadata."""
    prefix = texts.get("hoodie.datasource.write.commitmeta.key.prefix", "_")
    option_texts: dict[str, str] = {}
    extra: dict[str, str] = {}
    for name, text in texts.items():
        key = canonical(name)
        if key is None and ((prefix and name.startswith(prefix)) or name in CHECKPOINT_KEYS):
            if is_credential(name) or masked_text(text) != text:
                problems.append(exposed(name))
            extra[name] = text
            continue
        if key is None and name.startswith(_NOTES):
            from lakebed.config.commit_notes import note_entry

            try:
                extra |= [note_entry(name, text)]
            except InvalidOption as error:
                problems.append(error)
            continue
        if key is None:
            problems.append(unknown_option(name))
        elif option_texts.get(key, text) != text:
            problems.append(
                InvalidOption(
                    f"{name}={redacted(key, text)} contradicts {key}={redacted(key, option_texts[key])}",
                    hint="they are one option: give it once",
                )
            )
        else:
            option_texts[key] = text
            _log_proposed(name, key, text)
    return option_texts, extra


def unknown_option(name: str) -> InvalidOption:
    """The error for a key that is not an option, with the nearest one."""
    near = nearest(name)
    return InvalidOption(
        f"unknown option {name}",
        hint=f"did you mean {near}?" if near else "`lakebed options list` shows all options",
        context={"option": name, "nearest": near},
    )


def _log_proposed(name: str, key: str, text: str) -> None:
    """Log, once per process, the option that Hudi has, if a job writes it as RFC-29 proposed it."""
    value = PROPOSED.get(key, {}).get(text.strip().lower())
    if (name in _PROPOSED_NAMES or value) and is_first_time("option", name):
        _log.warning("%s=%s is taken as %s=%s; RFC-29 proposed it by that name", name, text, key, value or text)


_WITHOUT_SYNC = f"{CATALOG_SYNC}=ignore: nothing is registered in a catalog"


def _log_once(option: Option, text: str, reason: str) -> None:
    if is_first_time("option", option.key):
        _log.warning("%s=%s has no effect: %s", option.key, redacted(option.key, text), reason)


Verdict = Literal["implemented", "ignored", "refused", "wrong", "unknown", "not installed"]
_COMMIT_METADATA = "hoodie.datasource.write.commitmeta.key.prefix"


@dataclass(frozen=True)
class OptionVerdict:
    """The status of one option: "implemented", "ignored" (it changes nothing here), "refused", "wrong" (a value that
    it cannot have), "unknown" or "not installed" (a package that it needs); `note` gives the reason, and what to write
    instead."""

    option: str
    value: str
    verdict: Verdict
    note: str

    @property
    def is_taken(self) -> bool:
        return self.verdict in ("implemented", "ignored")


def check_options(job_options: Mapping[str, Any]) -> list[OptionVerdict]:
    """The verdicts on a job's options, in the order of the options. A refused option raises no error.

    >>> [v.verdict for v in check_options({"hoodie.index.type": "BUCKET", "hoodie.indx.type": "BUCKET"})]
    ['implemented', 'unknown']
    """
    texts = {str(name): _text(value) for name, value in job_options.items() if value is not None}
    first: dict[str, str] = {}  # by key, the name that gives the option first
    verdicts: list[OptionVerdict] = []
    for name, value in texts.items():
        key = canonical(name) or name
        first_name = first.setdefault(key, name)
        if texts[first_name] == value:
            verdicts.append(_verdict(name, value, texts))
        else:
            note = f"it is one option with {first_name}={redacted(key, texts[first_name])}: give it once"
            verdicts.append(OptionVerdict(name, redacted(key, value), "wrong", note))
    return verdicts


def _verdict(name: str, value: str, job: Mapping[str, str]) -> OptionVerdict:
    key = canonical(name)
    text = redacted(key or name, value)
    if is_streamer_job(job) and (streamer_property := property_of(name)) is not None:
        return _streamer_verdict(name, value, text, streamer_property)
    if key is None and short_name(name) is not None and (near := nearest_property(name)) is not None:
        return OptionVerdict(name, text, "unknown", f"did you mean {near}?")
    prefix = job.get(_COMMIT_METADATA, "_")
    if key is None and ((prefix and name.startswith(prefix)) or name in CHECKPOINT_KEYS):
        if is_credential(name) or masked_text(value) != value:
            return OptionVerdict(name, text, "wrong", exposed(name).message)
        return OptionVerdict(name, text, "implemented", "goes into the commit's metadata")
    if key is None and name.startswith(_NOTES):
        from lakebed.config.commit_notes import note_entry

        try:
            note_entry(name, value)
        except InvalidOption as error:
            return OptionVerdict(name, text, "wrong", error.message)
        return OptionVerdict(name, text, "implemented", "goes into the commit's metadata")
    if key is None:
        return OptionVerdict(name, text, "unknown", unknown_option(name).hint)
    option = options()[key]
    note = option.note if key == name else f"{option.note} (now {key})".strip()
    if _is_of_sync(option) and job.get(CATALOG_SYNC, "").strip().lower() == "ignore":
        return OptionVerdict(name, text, "ignored", _WITHOUT_SYNC)
    if option.verdict == "ignored":
        return OptionVerdict(name, text, "ignored", note)
    try:
        with_it: dict[str, str] = {}
        if key == _CALLBACK_ON:  # which asks for the others of them
            prefix = _CALLBACK_ON.removesuffix("on")
            with_it = {key: text for key, text in job.items() if key.startswith(prefix)}
        resolve_options({**with_it, key: value})
    except InvalidOption as problem:
        return OptionVerdict(name, text, "wrong", str(problem))
    except LakebedError as problem:
        return OptionVerdict(name, text, "refused", problem.hint or str(problem))
    missing = _missing_package(option, text, job)
    if missing:
        return OptionVerdict(name, text, "not installed", missing)
    # a refused option whose value asks for what lakebed does anyway
    verdict: Verdict = "ignored" if option.verdict == "refused" else option.verdict
    return OptionVerdict(name, text, verdict, note)


def _streamer_verdict(name: str, value: str, text: str, definition: StreamerProperty) -> OptionVerdict:
    """The verdict on a property of a job of Hudi Streamer, which an ingest job takes under `properties`."""
    if definition.values is not None and value not in definition.values:
        return OptionVerdict(name, text, "wrong", f"it is one of {', '.join(definition.values)}")
    if definition.is_number and not value.isdigit():
        return OptionVerdict(name, text, "wrong", "give a whole number")
    section, _, key = definition.key.rpartition(".")
    counterpart = f"lakebed ingest: {f'[{section}] ' if section else ''}{key}" if definition.key else ""
    return OptionVerdict(name, text, definition.verdict, definition.note or counterpart)


def _missing_package(option: Option, text: str, job: Mapping[str, str]) -> str:
    """The package to install for this value; empty if none is missing."""
    if option.setting == "index.type" and job.get(_HBASE_TRANSPORT, "").strip().lower() == "thrift":
        return ""
    word = simple_name(text.strip()).lower()
    for setting, value, package, extra in _EXTRAS:
        if (option.setting, word) == (setting, value.lower()) and find_spec(package) is None:
            return f"it needs the package {package}: pip install 'lakebed[{extra}]'"
    return ""
