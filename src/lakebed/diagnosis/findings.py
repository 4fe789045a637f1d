"""What an examination of a table gives: findings with a severity, sorted, and a page of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from html import escape
from typing import Any

from lakebed.errors import LakebedError
from lakebed.wording import Printed, count_text

_URI_OF_COMMAND = re.compile(r"(?<=\blakebed )([a-z-]+ (?:[a-z-]+ )?)URI\b")


class Severity(IntEnum):
    """The severity of a finding. The greatest of all findings is the exit code of `lakebed maintenance doctor`.

    >>> max([Severity.FINE, Severity.ERROR, Severity.WARNING]).name
    'ERROR'
    """

    FINE = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, repr=False)
class Finding(Printed):
    """One fact that was examined. `check` names the examined thing, `text` is the result. `remedy` is the advice, as a
    command if there is one; empty if there is nothing to do.

    >>> print(Finding("clock", Severity.FINE, "the clock here is that of the storage"))
    ok       clock: the clock here is that of the storage
    """

    check: str
    severity: Severity
    text: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "check": self.check,
            "severity": self.severity.name.lower(),
            "text": self.text,
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        word = "ok" if self.severity is Severity.FINE else self.severity.name.lower()
        line = f"{word:<8} {self.check}: {self.text}"
        return f"{line}\n{'':<8} -> {self.remedy}" if self.remedy else line


@dataclass(frozen=True, repr=False)
class Diagnosis(Printed):
    """The findings about one table, the worst first.

    `severity` is that of the worst finding. A diagnosis is true where there is no finding of an error.

    >>> fine, odd = Finding("a", Severity.FINE, "fine"), Finding("b", Severity.WARNING, "odd", "wait")
    >>> page = Diagnosis.of("trips", [fine, odd])
    >>> page.severity.name, [finding.check for finding in page.findings]
    ('WARNING', ['b', 'a'])
    """

    uri: str
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, uri: str, findings: Iterable[Finding]) -> Diagnosis:
        """The diagnosis with the worst findings first, findings of one severity in their given order. Commands name the
        table."""
        named = (replace(f, text=name_table(f.text, uri), remedy=name_table(f.remedy, uri)) for f in findings)
        return cls(uri, tuple(sorted(named, key=lambda finding: -finding.severity)))

    @property
    def severity(self) -> Severity:
        """The severity of the worst finding."""
        return max((finding.severity for finding in self.findings), default=Severity.FINE)

    @property
    def ok(self) -> bool:
        """Whether there is neither a warning nor an error."""
        return self.severity is Severity.FINE

    def __bool__(self) -> bool:
        return self.severity < Severity.ERROR

    def of_check(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check, the worst first."""
        return tuple(finding for finding in self.findings if finding.check == check)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "uri": self.uri,
            "severity": self.severity.name.lower(),
            "exit_code": int(self.severity),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        counts = {severity: sum(f.severity is severity for f in self.findings) for severity in Severity}
        total = f"{count_text(counts[Severity.ERROR], 'error')}, {count_text(counts[Severity.WARNING], 'warning')}"
        return "\n".join([f"{self.uri}: {total}", *map(str, self.findings)])

    def _repr_html_(self) -> str:
        cells = (
            f"<tr><td>{f.severity.name.lower()}</td><td>{escape(f.check)}</td><td>{escape(f.text)}</td>"
            f"<td><code>{escape(f.remedy)}</code></td></tr>"
            for f in self.findings
        )
        head = "<tr><th>severity</th><th>check</th><th>finding</th><th>what to do</th></tr>"
        return f"<table><caption>{escape(self.uri)}</caption>{head}{''.join(cells)}</table>"


def finding_of(check: str, error: Exception, remedy: str = "") -> Finding:
    """The finding for an error of a check; its remedy is the error's hint unless `remedy` is given."""
    if isinstance(error, LakebedError):
        return Finding(check, Severity.ERROR, error.message, remedy or error.hint)
    return Finding(check, Severity.ERROR, f"{type(error).__name__}: {error}", remedy)


def name_table(text: str, uri: str) -> str:
    """The text with the table's URI in each command that has the word `URI` for it, as hints of errors do.

    >>> name_table("Finish it: `lakebed restore URI`; `lakebed load NEW_URI a`", "a b")
    "Finish it: `lakebed restore 'a b'`; `lakebed load NEW_URI a`"
    """
    return _URI_OF_COMMAND.sub(lambda match: f"{match[1]}{shlex.quote(uri)}", text)


def command(verb: str, uri: str, *arguments: str) -> str:
    """A command line about a table, quoted for a shell.

    >>> command("indexes repair", "a b", "files")
    "lakebed indexes repair 'a b' files"
    """
    return " ".join(["lakebed", verb, shlex.quote(uri), *map(shlex.quote, arguments)])
