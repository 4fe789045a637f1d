"""Options: a job's `hoodie.*` and `lakebed.*` keys, checked against the table of options, turned into settings.

To add an option: one line in `options.tsv`, one field in `settings.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, cast

from lakebed.config.collected import CollectedSettings, Options, split_partition_types
from lakebed.config.conflicts import check_index, check_table
from lakebed.config.option_table import Option, canonical, nearest, options
from lakebed.config.settings import (
    ClusteringSettings,
    CompactionSettings,
    IndexSettings,
    ReadSettings,
    SparkSettings,
    TableSettings,
    WriteSettings,
)
from lakebed.config.values import (
    PROPOSED,
    asks_for_nothing,
    is_credential,
    parse_value,
    refusal,
    shown,
)
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature

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
    "conflicts_with_table",
    "resolve_options",
    "service_properties",
    "service_settings",
    "split_partition_types",
    "with_table_settings",
]

_log = logging.getLogger("lakebed.options")
_logged: set[str] = set()

# Names of RFC-29, which real Hudi never had.
_PROPOSED_NAMES = frozenset({"hoodie.hash.index.bucket.num", "hoodie.datasource.write.indexkey.field"})

# Settings of writes that a table remembers, too.
_REMEMBERED_WRITES = frozenset(
    {
        "write.small_file_limit",
        "write.max_file_size",
        "write.record_size_estimate",
        "write.insert_auto_split",
        "write.insert_split_size",
        "write.compression_codec",
        "write.compression_level",
        "write.bloom_filter",
        "write.bloom_entries",
        "write.bloom_fpp",
        "write.bloom_type",
        "write.bloom_max_entries",
        "write.merge_candidates",
        "write.log_file_bytes",
        "write.log_block_bytes",
        "write.record_positions",
        "write.delete_lookup",
        "write.copy_row_groups",
        "write.evolution",
        "write.memory",
        "write.tasks",
        "write.clustering_updates",
        "write.concurrency",
        "write.estimator_max_commits",
        "write.estimator_threshold",
        "write.estimator_metadata_bytes",
        "write.sort_mode",
        "write.combine_before_insert",
        "write.log_block_format",
        "write.bucket_bytes",
        "write.lock_wait_seconds",
        "write.heartbeat_interval_seconds",
        "write.early_conflicts",
        "write.early_commit_check",
        "write.stats_columns",
        "write.stats_most_columns",
        "write.column_stats",
        "write.index_groups_least",
        "write.index_groups_most",
        "write.index_growth",
        "write.index_group_bytes",
        "write.partitioned_groups_least",
        "write.partitioned_groups_most",
        "write.max_filegroup_size",
        "write.metadata_compact_after",
        "write.metadata_log_compaction",
        "write.metadata_log_compact_after",
        "missing.null",
        "missing.drop",
    }
)
# Remembered where it is false: an index that is asked for is made once, and does not return after it was dropped.
_COLUMN_STATS = "hoodie.metadata.index.column.stats.enable"
# What else a new table takes: it is said by its properties, by its indexes, or belongs to the object that is returned.
_OF_NEW_TABLES = ("table.", "index.", "hbase.", "keygen")
_OF_NEW_TABLES_TOO = frozenset(
    {
        "spark.worker_tuning",
        "write.metadata",
        "write.record_index",
        "write.partitioned_record_index",
        "write.bloom_filters_index",
    }
)
_SERVICES = ("compaction.", "cleaning.", "archival.", "clustering.", "partition_ttl.", "file_sizing.", "retries.")
# To run a service within the write and to leave it to another job are two answers to one question.
_EITHER = (
    {"hoodie.compact.inline", "hoodie.compact.schedule.inline"},
    {"hoodie.clustering.inline", "hoodie.clustering.schedule.inline"},
)


def resolve_options(given: Mapping[str, Any] | None = None) -> Options:
    """Settings from options; values may be text, booleans, numbers or lists.

    Raises InvalidOption for an unknown key (naming the nearest), a value of the wrong kind, or two keys that
    say different things; UnsupportedFeature for what lakebed does not do. Keys that change nothing here are
    accepted and logged once a process.

    >>> resolve_options({"hoodie.parquet.small.file.limit": 0}).write.small_file_limit
    0
    >>> resolve_options({"hoodie.index.typ": "BUCKET"})
    Traceback (most recent call last):
    lakebed.errors.InvalidOption: unknown option hoodie.index.typ. Did you mean hoodie.index.type?
    """
    try:
        pairs = dict(given or {})
    except (TypeError, ValueError) as cause:
        raise InvalidOption(
            f"options of type {type(given).__name__}", hint="give a dict of names and values"
        ) from cause
    texts = {str(name): _text(value) for name, value in pairs.items() if value is not None}
    problems: list[LakebedError] = []
    known, extra = _canonical_keys(texts, problems)
    settings = CollectedSettings()
    for key, text in known.items():
        try:
            _take(settings, options()[key], text)
        except LakebedError as problem:
            problems.append(problem)
    if problems:
        raise all_in_one(problems)
    return settings.options(known, extra)


def _take(settings: CollectedSettings, option: Option, text: str) -> None:
    """An implemented option becomes a setting; the rest is logged or refused."""
    if option.verdict == "implemented":
        value = parse_value(option, text)
        if option.setting:
            settings.put(option, value)
    elif option.verdict == "ignored":
        _log_once(option, text)
    elif not asks_for_nothing(option, text):
        raise refusal(option, text)


def all_in_one(problems: Sequence[LakebedError]) -> LakebedError:
    """One error that says everything that several would: a job is refused once, not once for each option."""
    if len(problems) == 1:
        return problems[0]
    kind = InvalidOption if any(isinstance(p, InvalidOption) for p in problems) else UnsupportedFeature
    lines = [f"  {n}. {problem}" for n, problem in enumerate(problems, 1)]
    return kind(
        "\n".join([f"{len(problems)} options cannot be taken:", *lines]),
        context={"problems": [{"message": p.message, "hint": p.hint, **p.context} for p in problems]},
    )


def conflicts_with_table(options: Options, properties: Mapping[str, str]) -> None:
    """Raise InvalidOption where a job's options contradict the table's own `hoodie.properties`; the message shows
    both values. What the options do not say is not looked at."""
    check_table(options.table, properties)
    check_index(options.index, properties)


def service_properties(known: Mapping[str, str]) -> dict[str, str]:
    """Those of a job's options (`Options.given`) that say how table services run and how files are written, as a new
    table remembers them: under names of lakebed's, since real Hudi refuses a job that says otherwise than a property of
    its own.

    >>> service_properties({"hoodie.compact.inline": "true", "hoodie.table.name": "trips"})
    {'lakebed.compact.inline': 'true'}
    """
    keys = _service_keys()
    asks = {key for key, text in known.items() if key == _COLUMN_STATS and text.lower() == "true"}
    return {keys[key]: text for key, text in known.items() if key in keys and key not in asks}


def check_table_options(given: Options) -> None:
    """Raise `InvalidOption` for options that say how one read or write is done: a table has no place for them.

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
        for key in (*given.given, *given.write.extra_metadata)
        if key not in options() or _is_of_a_verb(options()[key])
    ]
    if problems:
        raise all_in_one(problems)


def _is_of_a_verb(option: Option) -> bool:
    setting = option.setting
    if option.verdict != "implemented" or not setting or option.key in _service_keys():
        return False
    return setting not in _OF_NEW_TABLES_TOO and not setting.startswith(_OF_NEW_TABLES)


@cache
def _service_keys() -> dict[str, str]:
    """The options that a table of lakebed remembers, each with the name under which it does."""
    found = (k for k, o in options().items() if o.setting.startswith(_SERVICES) or o.setting in _REMEMBERED_WRITES)
    return {key: key.replace("hoodie.", "lakebed.", 1) for key in found}


@cache
def _write_keys() -> dict[str, str]:
    """Those of them that say how a write is done."""
    return {key: own for key, own in _service_keys().items() if options()[key].setting in _REMEMBERED_WRITES}


def with_table_settings(
    given: Options, properties: Mapping[str, str], *, defaults: Mapping[str, str] | None = None
) -> Options:
    """A job's options with the write settings that the table remembers, and `defaults` where neither says anything.

    >>> with_table_settings(resolve_options({}), {"lakebed.parquet.small.file.limit": "7"}).write.small_file_limit
    7
    """
    texts = {key: properties.get(own, properties.get(key)) for key, own in _write_keys().items()}
    stored = {key: text for key, text in texts.items() if text is not None and key not in given.given}
    more = {**{k: v for k, v in (defaults or {}).items() if k not in given.given}, **stored}
    if not more:
        return given
    write = resolve_options({**more, **given.given}).write
    return replace(given, write=replace(write, extra_metadata=given.write.extra_metadata))


def service_settings(given: Mapping[str, str], properties: Mapping[str, str]) -> Options:
    """How a table's services run: as a job's options say (`Options.given`), else as the table does.

    >>> service_settings({}, {"lakebed.clean.commits.retained": "3"}).cleaning.commits
    3
    """
    keys = _service_keys()
    texts = {key: properties.get(own, properties.get(key)) for key, own in keys.items()}
    stored = {key: text for key, text in texts.items() if text is not None}
    asked = {key: text for key, text in given.items() if key in keys}
    for either in _EITHER:
        if asked.keys() & either:
            stored = {key: text for key, text in stored.items() if key not in either}
    return _resolved(tuple({**stored, **asked}.items()))


@lru_cache(maxsize=64)
def _resolved(texts: tuple[tuple[str, str], ...]) -> Options:
    """A table's services ask for the same settings several times a write."""
    return resolve_options(dict(texts))


def compaction_settings(given: Mapping[str, str], properties: Mapping[str, str]) -> CompactionSettings:
    """How a table's logs are compacted, see `service_settings`.

    >>> compaction_settings({}, {"lakebed.compact.inline.max.delta.commits": "3"}).delta_commits
    3
    """
    return service_settings(given, properties).compaction


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, cast("Sequence[object]", value)))
    return str(value)


def _canonical_keys(texts: Mapping[str, str], problems: list[LakebedError]) -> tuple[dict[str, str], dict[str, str]]:
    """Known options by canonical key, and the keys that belong in the commit metadata."""
    prefix = texts.get("hoodie.datasource.write.commitmeta.key.prefix", "_")
    known: dict[str, str] = {}
    extra: dict[str, str] = {}
    for name, text in texts.items():
        key = canonical(name)
        if key is None and prefix and name.startswith(prefix):
            if is_credential(name):
                problems.append(exposed(name))
            extra[name] = text
            continue
        if key is None:
            problems.append(unknown_option(name))
        elif known.get(key, text) != text:
            problems.append(
                InvalidOption(
                    f"{name}={shown(key, text)} contradicts {key}={shown(key, known[key])}",
                    hint="they are one option: give it once",
                )
            )
        else:
            known[key] = text
            _log_proposed(name, key, text)
    return known, extra


def exposed(name: str) -> InvalidOption:
    """The error for a credential that would go into commit metadata."""
    return InvalidOption(
        f"{name} is a credential, and commit metadata is read by whoever reads the table",
        hint="credentials of storage belong into storage_options or the environment; keep others out of options",
        context={"option": name},
    )


def unknown_option(name: str) -> InvalidOption:
    """The error for a key that is no option, with the nearest one."""
    near = nearest(name)
    return InvalidOption(
        f"unknown option {name}",
        hint=f"did you mean {near}?" if near else "`lakebed options list` shows all options",
        context={"option": name, "nearest": near},
    )


def _log_proposed(name: str, key: str, text: str) -> None:
    """Name the option that Hudi has where a job writes it as RFC-29 proposed it, once a process."""
    value = PROPOSED.get(key, {}).get(text.strip().lower())
    if (name in _PROPOSED_NAMES or value) and name not in _logged:
        _logged.add(name)
        _log.warning("%s=%s is taken as %s=%s; RFC-29 proposed it by that name", name, text, key, value or text)


def _log_once(option: Option, text: str) -> None:
    if option.key not in _logged:
        _logged.add(option.key)
        _log.warning("%s=%s has no effect: %s", option.key, shown(option.key, text), option.note)
