"""What commands on one table share: they open it, read its options, show progress and print the result."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, Concatenate, ParamSpec, Protocol

import typer
from typer.core import TyperCommand

import lakebed
from lakebed.cli.hints import as_commands
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts, working
from lakebed.model import WAREHOUSE
from lakebed.sharing import once


class Result(Protocol):
    """The result of a write or service: a text for display, plain values for programs."""

    def to_dict(self) -> dict[str, Any]: ...


P = ParamSpec("P")

Message = Annotated[
    str | None, typer.Option("--message", help="Why it is done: recorded with the commit, and shown by `versions`.")
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata", metavar="NAME=TEXT", help="What is recorded with the commit, too; give it once for each."
    ),
]
WriteOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="A setting for this call, from `lakebed options list`; give it once for each.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
PlanOnly = Annotated[
    bool, typer.Option("--plan-only", help="Only record the plan; a later run, or real Hudi, carries it out.")
]
PartitionPaths = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="PATH", help="Only in this partition path; give it once for each."),
]


# A command with one of these parameters is about tables, which may have names.
_OF_TABLES = ("storage_option", "job")


def _warehouse_option() -> Any:
    """The option `--warehouse` of a command about tables."""

    def options(
        warehouse: Annotated[
            str | None,
            typer.Option(
                metavar="URI",
                envvar=WAREHOUSE,
                help="Where tables have names, such as sales.orders: a folder, or a catalog as hive://host:9083.",
            ),
        ] = None,
    ) -> None:
        raise NotImplementedError(warehouse)

    alone = typer.Typer(add_completion=False)
    alone.command()(options)
    command: Any = typer.main.get_command(alone)
    return command.params[0]


def _in_warehouse(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command, run with `--warehouse` as the warehouse of the process's environment, in which every
    thread and worker finds it."""

    def run(warehouse: str | None = None, **arguments: Any) -> Any:
        before = os.environ.get(WAREHOUSE)
        if warehouse is not None:
            os.environ[WAREHOUSE] = warehouse
        try:
            return function(**arguments)
        finally:
            os.environ.pop(WAREHOUSE, None)
            if before is not None:
                os.environ[WAREHOUSE] = before

    return run


class Command(TyperCommand):
    """A command whose parameters are read from its function when they are first asked for. A process runs one of some
    ninety commands, and the list of commands needs no parameters."""

    def __init__(self, function: Callable[..., Any], **settings: Any) -> None:
        self._function = function
        super().__init__(**settings)

    @once
    def _read(self) -> Any:
        """The command that typer makes of the function."""
        alone = typer.Typer(add_completion=False)
        alone.command()(self._function)
        command: Any = typer.main.get_command(alone)
        if any(parameter.name in _OF_TABLES for parameter in command.params):
            command.params.append(_warehouse_option())
            command.callback = _in_warehouse(command.callback)
        return command

    @property
    def params(self) -> list[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._read.params

    @params.setter
    def params(self, unread: list[Any]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Nothing: typer sets those of `unread_function`, which has none."""

    @property
    def callback(self) -> Callable[..., Any] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._read.callback

    @callback.setter
    def callback(self, unread: Callable[..., Any] | None) -> None:
        """Nothing: typer sets `unread_function`."""

    def get_help(self, ctx: Any) -> str:
        """The help text of typer, with "<str>..." in place of its "<list[str]>", in the same width."""
        return super().get_help(ctx).replace("<list[str]>", "<str>...   ")


def unread_function(function: Callable[..., Any]) -> Callable[[], None]:
    """A function with the name and docstring of `function` and without its parameters, which typer would read when it
    makes the list of commands."""

    def unread() -> None:
        raise NotImplementedError(f"{function.__name__} runs by its `Command`")

    unread.__name__, unread.__doc__ = function.__name__, function.__doc__
    return unread


def open_table(uri: str, storage_option: list[str] | None) -> lakebed.Table:
    """The table at `uri`, with the storage options of the command line."""
    return lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))


def ask_first(question: str, action: str) -> None:
    """Ask before something is deleted or taken back, and end the command unless the answer is yes. Without a terminal
    nobody can answer: raises `BadParameter`, which names `--yes`."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"give --yes to {action}, or --dry-run", param_hint="--yes")
    typer.confirm(question, abort=True)


def show_result(result: Result, output: Form, details: Iterable[str] = ()) -> None:
    """Print a result: its values for programs, otherwise its text and the lines of `details`."""
    if output.is_for_programs:
        show_facts(result.to_dict(), output)
        return
    typer.echo(as_commands(str(result)))
    for line in details:
        typer.echo(f"  {line}")


def table_command(
    progress: str, details: Callable[[Any], Iterable[str]] = lambda _: ()
) -> Callable[[Callable[Concatenate[lakebed.Table, dict[str, str], P], Result]], Callable[..., None]]:
    """A decorator that makes a command from a function. The function gets the table and the options of `--option`, and
    returns the result to print.

    The command takes the table's URI, then the function's own parameters, then `--option`, `--output` and
    `--storage-option`. `progress` is shown while the function runs; it may name parameters ("upserting {file}").
    `details` makes further lines of text from the result.
    """

    def command_of(function: Callable[Concatenate[lakebed.Table, dict[str, str], P], Result]) -> Callable[..., None]:
        def command(
            uri: Uri,
            option: WriteOptions = None,
            output: Output = Form.TABLE,
            storage_option: StorageOptions = None,
            **function_parameters: Any,
        ) -> None:
            run: Callable[..., Result] = function
            table = open_table(uri, storage_option)
            options = pairs(option, "--option")
            # of a path its last part
            arguments = {name: str(value).rstrip("/").rpartition("/")[2] for name, value in function_parameters.items()}
            with working(progress.format(**arguments)):
                result = run(table, options, **function_parameters)
            show_result(result, output, details(result))

        uri, *shared, _ = inspect.signature(command, eval_str=True).parameters.values()
        _, _, *unevaluated = inspect.signature(function).parameters.values()
        # the table and the result, of which typer asks nothing, are types whose modules no command line needs to import
        own_parameters = [part.replace(annotation=eval(part.annotation, function.__globals__)) for part in unevaluated]
        parameters = [part.replace(kind=part.KEYWORD_ONLY) for part in (uri, *own_parameters, *shared)]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {}  # the signature has them, evaluated
        command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        return command

    return command_of


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Generator[None]:
    """Make the first SIGTERM or SIGINT in the block set `stop`, and the next one interrupt."""

    def asked(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield
        return
    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
