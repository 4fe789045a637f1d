"""What obstore's errors mean: whether a request was done, may have been done, or was not; and without credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakebed.errors import StorageError
from lakebed.storage.failure import refused

_STATUS = re.compile(r"status code: (\d{3})")
_KIND = re.compile(r"\bkind: (\w+)")
_QUERY = re.compile(r"\?[^\s\"')>,]+")
_LONG = 400


@dataclass(frozen=True, slots=True)
class Verdict:
    """`undone`: the store certainly did not do it. `retryable`: it may work the next time."""

    undone: bool
    retryable: bool
    hint: str = ""


def judge(error: BaseException) -> Verdict:
    """Read the outcome of a request that was sent once from obstore's error text, the only place that has it."""
    text = str(error)
    status = _STATUS.search(text)
    if status:
        code = int(status.group(1))
        if code in (408, 429) or (code == 503 and "SlowDown" in text):
            return Verdict(undone=code != 408, retryable=True, hint="the store asks for fewer requests")
        if code >= 500 and code != 501:
            return Verdict(undone=False, retryable=True)
        hint = "check the credentials and what they may do" if code in (401, 403) else ""
        return Verdict(undone=True, retryable=False, hint=hint)
    kind = _KIND.search(text)
    if kind is None:
        return Verdict(undone=True, retryable=False)
    if kind.group(1) == "Connect":
        return Verdict(undone=True, retryable=True, hint="nothing answers there; check the endpoint")
    return Verdict(undone=False, retryable=True)


def redact(text: str, secrets: Iterable[str]) -> str:
    """The first line of an error's text without credentials: known values, and the queries of signed URLs."""
    text = text.split("\n\nDebug source", 1)[0].split("\n", 1)[0]
    for secret in secrets:
        text = text.replace(secret, "***")
    return _QUERY.sub("?...", text)[:_LONG]


def from_store_error(
    error: BaseException, doing: str, url: str, secrets: Iterable[str], *, conditional: bool = False
) -> StorageError:
    """The `StorageError` for an obstore error. Raise it `from None`: the original's text may hold credentials."""
    verdict = judge(error)
    return refused(
        f"cannot {doing} {url}: {redact(str(error), secrets)}",
        verdict.hint,
        url=url,
        retryable=verdict.retryable,
        doubtful=conditional and not verdict.undone,
    )
