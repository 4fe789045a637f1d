"""What would become of a job's options: a verdict for each, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakebed.config.option_table import canonical, options
from lakebed.config.options import exposed, resolve_options, unknown_option
from lakebed.config.values import is_credential, shown
from lakebed.errors import InvalidOption, LakebedError

Verdict = Literal["implemented", "ignored", "refused", "wrong", "unknown"]
_COMMIT_METADATA = "hoodie.datasource.write.commitmeta.key.prefix"


@dataclass(frozen=True)
class OptionVerdict:
    """What becomes of one option: "implemented", "ignored" (it changes nothing here), "refused", "wrong" (a value that
    it cannot have) or "unknown"; `note` says why, and what to write instead."""

    option: str
    value: str
    verdict: Verdict
    note: str

    @property
    def is_taken(self) -> bool:
        return self.verdict in ("implemented", "ignored")


def check_options(given: Mapping[str, Any]) -> list[OptionVerdict]:
    """A verdict on each of a job's options, in their order; nothing is raised for one that is refused.

    >>> [v.verdict for v in check_options({"hoodie.index.type": "BUCKET", "hoodie.indx.type": "BUCKET"})]
    ['implemented', 'unknown']
    """
    prefix = str(given.get(_COMMIT_METADATA, "_"))
    return [_verdict(str(name), value, prefix) for name, value in given.items()]


def _verdict(name: str, value: Any, prefix: str) -> OptionVerdict:
    key = canonical(name)
    text = shown(key or name, str(value))
    if key is None and prefix and name.startswith(prefix):
        if is_credential(name):
            return OptionVerdict(name, text, "wrong", exposed(name).message)
        return OptionVerdict(name, text, "implemented", "goes into the commit's metadata")
    if key is None:
        return OptionVerdict(name, text, "unknown", unknown_option(name).hint)
    option = options()[key]
    note = option.note if key == name else f"{option.note} (now {key})".strip()
    try:
        resolve_options({key: value})
    except LakebedError as problem:
        wrong = isinstance(problem, InvalidOption)
        return OptionVerdict(name, text, "wrong" if wrong else "refused", problem.hint or str(problem))
    # a refused option whose value asks for what lakebed does anyway
    verdict: Verdict = "ignored" if option.verdict == "refused" else option.verdict
    return OptionVerdict(name, text, verdict, note)
