"""The description of an ingest job: a TOML file, a dict, or the dataclasses themselves."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from lakebed.config.java_properties import read_options
from lakebed.errors import InvalidOption
from lakebed.ingestion.description import build, check_keys, with_variables
from lakebed.ingestion.source import IngestSource
from lakebed.ingestion.streamer import with_properties
from lakebed.secrets import masked_repr

Operation = Literal["upsert", "insert", "bulk_insert"]
OnFailure = Literal["fail", "table"]


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, repr=False)
class Target:
    """The table to which rows are written. `create` are arguments of `lakebed.create` for a table that does not exist
    yet; without it the table has to exist. `options` are those of each write."""

    uri: str
    operation: str = "upsert"
    create: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=_nothing)
    storage_options: dict[str, Any] = field(default_factory=_nothing, repr=False)

    __repr__ = masked_repr

    def __post_init__(self) -> None:
        _one_of("[target] operation", self.operation, get_args(Operation))


@dataclass(frozen=True, repr=False)
class Errors:
    """The treatment of bad messages: the job fails and names the first one, or they are written to `table`, by their
    position in the source. A table that does not exist is created."""

    table: str | None = None
    on_failure: str | None = None
    options: dict[str, Any] = field(default_factory=_nothing)
    storage_options: dict[str, Any] = field(default_factory=_nothing, repr=False)

    __repr__ = masked_repr

    def __post_init__(self) -> None:
        if self.on_failure is not None:
            _one_of("[errors] on_failure", self.on_failure, get_args(OnFailure))
        if self.on_failure == "table" and self.table is None:
            raise InvalidOption("[errors] on_failure is 'table', and no table is named", hint="add table = ...")

    @property
    def fails(self) -> bool:
        """Whether a bad row ends the job."""
        return self.table is None or self.on_failure == "fail"


@dataclass(frozen=True, repr=False)
class IngestJob:
    """One ingest job.

    `source` is a dict with `kind` ("files", "table", "kafka" or "sql") and the settings of that kind, or an object with
    a method `poll`. `transform` is a query of DuckDB over `input`. `interval` is the pause in seconds after a round
    without new rows. `max_rows` bounds the rows of one commit. `identifier` is needed where several jobs write one
    table. With `services` the table's services run between rounds, as the table's settings make them due.

    >>> import lakebed
    >>> lakebed.IngestJob({"kind": "files", "path": "/data/trips"}, {"uri": "/lake/trips"}).target.operation
    'upsert'
    """

    source: Mapping[str, Any] | IngestSource | Any
    target: Target
    transform: str | None = None
    errors: Errors = Errors()
    name: str = ""
    identifier: str = ""
    interval: float = 10.0
    max_rows: int = 500_000
    services: bool = True

    __repr__ = masked_repr

    def __post_init__(self) -> None:
        if not isinstance(self.target, Target):  # pyright: ignore[reportUnnecessaryIsInstance]
            object.__setattr__(self, "target", build(Target, self.target, "[target]"))
        if not isinstance(self.errors, Errors):  # pyright: ignore[reportUnnecessaryIsInstance]
            object.__setattr__(self, "errors", build(Errors, self.errors, "[errors]"))
        if self.max_rows < 1:
            raise InvalidOption(f"max_rows is {self.max_rows}", hint="give 1 or more")
        if self.interval < 0:
            raise InvalidOption(f"interval is {self.interval:g}", hint="give a number of seconds, 0 or more")

    @property
    def label(self) -> str:
        """The name of the job in events and errors."""
        return self.name or self.target.uri


_SECTIONS = ("source", "transform", "target", "errors")
_PLAIN = ("name", "identifier", "interval", "max_rows", "services", "properties")


def jobs_of(job: Any) -> list[IngestJob]:
    """The jobs of a path of a TOML file, of a dict of the same form, of a `IngestJob`, or of a list of these.

    A description has the sections `source`, `target`, `transform` and `errors`, or several jobs below `jobs` by name.
    Raises `InvalidOption` for what it does not understand, with its place."""
    if isinstance(job, IngestJob):
        return [job]
    if isinstance(job, str | os.PathLike):
        return _of_mapping(_read(os.fspath(job)), os.path.basename(os.fspath(job)))
    if isinstance(job, Mapping):
        return _of_mapping(cast("Mapping[str, Any]", job), "the job")
    if isinstance(job, list | tuple):
        return [ingest_job for part in cast("list[Any]", job) for ingest_job in jobs_of(part)]
    raise InvalidOption(
        f"ingest() takes the path of a TOML file, a dict or an IngestJob, not {type(job).__name__}",
        hint="see docs/ingest.md",
    )


def _read(path: str) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path} is no TOML: {error}", hint="correct the file") from error


def _of_mapping(values: Mapping[str, Any], where: str) -> list[IngestJob]:
    if "jobs" not in values:
        return [_job(values, where)]
    check_keys(values, ("jobs",), where)
    if not isinstance(values["jobs"], Mapping) or not values["jobs"]:
        raise InvalidOption(
            f"{where} [jobs] is {values['jobs']!r}", hint="write [jobs.NAME.source], [jobs.NAME.target]"
        )
    jobs = cast("Mapping[str, Any]", values["jobs"])
    return [_job({"name": name, **part}, f"{where} [jobs.{name}]") for name, part in jobs.items()]


def _job(values: Mapping[str, Any], where: str) -> IngestJob:
    check_keys(values, (*_SECTIONS, *_PLAIN), where)
    if "properties" in values:
        values = dict(values)
        properties = values.pop("properties")
        if isinstance(properties, str):
            properties = read_options(Path(with_variables(properties, f"{where} properties")))
        if not isinstance(properties, Mapping):
            raise InvalidOption(f"{where} properties is {properties!r}", hint="give a path, or a table of properties")
        values = with_properties(values, cast("Mapping[str, Any]", properties))
    for section in ("source", "target"):
        if section not in values:
            raise InvalidOption(f"{where} lacks [{section}]", hint=f"add it: [{section}]", context={"key": section})
    source, transform, target = values["source"], values.get("transform"), values["target"]
    if isinstance(transform, Mapping):
        check_keys(cast("Mapping[str, Any]", transform), ("sql",), f"{where} [transform]")
        transform = cast("Mapping[str, Any]", transform).get("sql")
    errors = values.get("errors", {})
    plain = {name: values[name] for name in _PLAIN[:-1] if name in values}
    checked = build(_Plain, plain, where)
    return IngestJob(
        source,
        target if isinstance(target, Target) else build(Target, target, f"{where} [target]"),
        transform,
        errors if isinstance(errors, Errors) else build(Errors, errors, f"{where} [errors]"),
        **{name: getattr(checked, name) for name in plain},
    )


@dataclass(frozen=True)
class _Plain:
    """The keys of a job that are not sections."""

    name: str = ""
    identifier: str = ""
    interval: float = 0.0
    max_rows: int = 0
    services: bool = True


def _one_of(label: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidOption(
            f"{label} is {value!r}", hint=f"it is one of {', '.join(allowed)}", context={"value": value}
        )
