"""Arguments of the public methods, checked by their names: another type is an `InvalidOption` that names the accepted
ones.

A name means the same thing in the whole public surface, so its accepted types are defined here once.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import wraps
from numbers import Integral, Real
from typing import Any, TypeVar

from lakebed.errors import InvalidOption

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)
Names = str | Sequence[str] | None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def is_integer(value: Any) -> bool:
    """Whether the value is a whole number, of Python or of NumPy."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def _are_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_distance(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and value == value


def are_names(value: Any) -> bool:
    """Whether the value is a name or a list of names."""
    return isinstance(value, str) or (
        isinstance(value, Sequence) and not isinstance(value, bytes) and all(isinstance(name, str) for name in value)
    )


def _are_tables(value: Any) -> bool:
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return _is_path(value) or (listed and all(_is_path(table) for table in value))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_options(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_moment(value: Any) -> bool:
    if isinstance(value, (str, date)) or is_integer(value):
        return bool(value == value)
    return hasattr(value, "instant") or (hasattr(value, "time") and hasattr(value, "action"))


def _is_condition(value: Any) -> bool:
    return isinstance(value, str) or type(value).__module__.startswith("pyarrow._compute")


def _is_type(value: Any) -> bool:
    return _is_text(value) or hasattr(value, "num_fields")


def _is_event(value: Any) -> bool:
    return hasattr(value, "is_set") and hasattr(value, "wait")


def _is_batch(value: Any) -> bool:
    return hasattr(value, "stream") and hasattr(value, "batch")


def _is_session(value: Any) -> bool:
    return hasattr(value, "createDataFrame")


_TEXT = (_is_text, "a text")
_TYPE = (_is_type, "a text or an Arrow type")
_PATH = (_is_path, "a path or a URI")
_NUMBER = (is_integer, "a whole number")
_DISTANCE = (_is_distance, "a number")
_SECONDS = (_are_seconds, "a number of seconds")
_NAMES = (are_names, "a name or a list of names")
_FLAG = (_is_flag, "True or False")
_OPTIONS = (_are_options, "a dict of option names and values")
_MOMENT = (
    _is_moment,
    "an instant, a datetime, a date, the number of a version, the name of a savepoint or the result of a write",
)
_CONDITION = (_is_condition, "a SQL condition or an Arrow expression")
_EVENT = (_is_event, "a threading.Event")
_BATCH = (_is_batch, "a lakebed.Once")
_SESSION = (_is_session, "a Spark session")
_Taken = tuple[Callable[[Any], bool], str]
# What each name takes.
TAKEN: dict[str, _Taken] = {
    "uri": _PATH,
    **dict.fromkeys(("name", "comment", "user", "query", "images", "layout", "scope", "mode", "sort", "format"), _TEXT),
    **dict.fromkeys(
        ("catalog", "database", "after", "old", "new", "text", "query_name", "ignore_checkpoint", "before", "message"),
        _TEXT,
    ),
    "type": _TYPE,
    **dict.fromkeys(("instant", "kind", "function", "column", "partition_buckets", "how", "suffix"), _TEXT),
    "text_column": _TEXT,
    **dict.fromkeys(("rows", "seed", "days", "buckets", "table_version", "groups", "retries", "min_files"), _NUMBER),
    **dict.fromkeys(("expected_rows", "depth", "max_commits", "lookups", "files", "split_over"), _NUMBER),
    **dict.fromkeys(("k", "dimension", "clusters", "bits", "probes", "rerank"), _NUMBER),
    **dict.fromkeys(("metric", "element", "base_format"), _TEXT),
    "metadata": (_are_options, "a dict of names and values"),
    "tables": (_are_tables, "a name, a path or a URI, or a list of them"),
    "interval": _SECONDS,
    "max_distance": _DISTANCE,
    **dict.fromkeys(("columns", "partitions", "sort_columns", "parts"), _NAMES),
    **dict.fromkeys(("key", "partition_by", "ordering", "hash_fields", "indexes"), _NAMES),
    **dict.fromkeys(
        ("dry_run", "plan_only", "when_due", "meta", "partial", "missing_ok", "wait", "verify", "read_only"), _FLAG
    ),
    **dict.fromkeys(("deletes", "unique_keys", "partitioned", "update_partition_path", "cdc"), _FLAG),
    **dict.fromkeys(("allow_existing", "first", "progress", "deep", "in_place", "full", "logs", "fresh"), _FLAG),
    "exact": _FLAG,
    **dict.fromkeys(("partitioning", "delimiter", "target", "source_alias", "identifier"), _TEXT),
    **dict.fromkeys(
        ("options", "function_options", "storage_options", "source_options", "properties", "settings"), _OPTIONS
    ),
    **dict.fromkeys(("defaults", "generated"), (_are_options, "a dict of columns and values")),
    **dict.fromkeys(("start", "end", "as_of"), _MOMENT),
    "spark": _SESSION,
    "where": _CONDITION,
    "stop": _EVENT,
    "once": _BATCH,
}


def checks_arguments(function: _F) -> _F:
    """The function with a check of its arguments: it refuses those of a type that their name does not take; a
    parameter's default is always valid. A text for a parameter that takes a sequence of names is one name, not its
    letters. A whole number of NumPy is passed on as Python's.

    >>> @checks_arguments
    ... def head(rows: int = 5) -> int:
    ...     return rows
    >>> head("five")
    Traceback (most recent call last):
    lakebed.errors.InvalidOption: head() takes a whole number as rows, not 'five'
    """
    code = inspect.unwrap(function).__code__
    if TAKEN.keys().isdisjoint(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        return function

    signature: inspect.Signature | None = None
    checked: dict[str, tuple[_Taken, Any]] = {}
    in_sequences: list[str] = []

    @wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        nonlocal signature, checked, in_sequences
        if signature is None:  # a class has many methods, and a process calls few
            of_function = inspect.signature(function)
            parameters = of_function.parameters
            checked = {
                n: (_FLAG if p.annotation == "bool" else TAKEN[n], p.default)  # `once` is a flag of services
                for n, p in parameters.items()
                if n in TAKEN
            }
            lists = [n for n in checked if TAKEN[n] is _NAMES]
            in_sequences = [n for n in lists if str(parameters[n].annotation).startswith("Sequence[")]
            signature = of_function  # last: another thread may be at work
        try:
            bound = signature.bind(*positional, **named)
        except TypeError as error:
            for name in named.keys() - signature.parameters.keys():
                if near := _near_argument(name, signature):
                    raise TypeError(f"{function.__name__}() {error}; did you mean {near!r}?") from None
            return function(*positional, **named)  # Python's own words for an argument too many
        arguments = bound.arguments
        for name, ((takes, expected), default) in checked.items():
            if name in arguments and arguments[name] is not default and not takes(arguments[name]):
                raise refused(function.__name__, name, arguments[name], expected)
            if takes is is_integer and isinstance(arguments.get(name), Integral):
                arguments[name] = int(arguments[name])
        for name in in_sequences:
            if isinstance(arguments.get(name), str):
                arguments[name] = [arguments[name]]
        return function(*bound.args, **bound.kwargs)

    return call  # pyright: ignore[reportReturnType]


def _near_argument(name: str, signature: inspect.Signature) -> str | None:
    """The argument that is meant by a name with a typo; None if none is near: a hint at another one leads astray."""
    from difflib import get_close_matches

    arguments = [argument for argument in signature.parameters if argument != "self"]
    begin_alike = [argument for argument in arguments if argument[:3] == name[:3]]
    near = get_close_matches(name, arguments, n=1, cutoff=0.7) or get_close_matches(name, begin_alike, n=1)
    return near[0] if near else None


def public_methods_check_arguments(cls: _C) -> _C:
    """The class, with `checks_arguments` applied to its public methods."""
    for name, member in list(vars(cls).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(cls, name, checks_arguments(member))
    return cls


def whole_number(method: str, name: str, value: Any, *, minimum: int = 0) -> int:
    """The value, if it is a whole number of at least `minimum`; raises `InvalidOption` for any other.

    >>> whole_number("limit", "rows", -1)
    Traceback (most recent call last):
    lakebed.errors.InvalidOption: limit() takes a whole number of at least 0 as rows, not -1
    """
    if not is_integer(value) or value < minimum:
        raise refused(method, name, value, f"a whole number of at least {minimum}")
    return int(value)


def refused(method: str, name: str, value: Any, takes: str) -> InvalidOption:
    """The error for a value that a method does not take."""
    redacted = " ".join(repr(value).split())  # trees of other libraries print over several lines
    return InvalidOption(
        f"{method}() takes {takes} as {name}, not {redacted if len(redacted) <= 60 else redacted[:57] + '...'}",
        context={"method": method, "argument": name},
    )


def with_arguments(options: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call, and as further ones its arguments that are not None; the options win.

    >>> with_arguments({"a": 1}, {"a": 2, "b": 3, "c": None})
    {'a': 1, 'b': 3}
    """
    return {**{key: value for key, value in arguments.items() if value is not None}, **(options or {})}


def names_of(names: Names) -> tuple[str, ...]:
    """One name, several or none as a tuple.

    >>> names_of("id"), names_of(None)
    (('id',), ())
    """
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)
