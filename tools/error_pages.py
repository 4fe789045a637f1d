"""docs/errors.md: each class of errors with its cause and its cure, from the docstrings of `lakebed.errors`."""

from __future__ import annotations

import inspect
import re

import lakebed
from lakebed.errors import LakebedError

_PAGE = re.compile(r"docs/(\w+)\.md")
_HEAD = """# Errors
<!-- made by `make docs`; edit the docstrings in `lakebed/errors.py` instead -->

Every error that lakebed raises on purpose is a `lakebed.LakebedError`: `message` says what is wrong and where, `hint`
what to do, `context` has the same facts for programs, and `retryable` is whether the same call may succeed later.

```python
>>> import lakebed
>>> try:
...     lakebed.open("memory://docs/nowhere")
... except lakebed.TableNotFound as error:
...     print(error.message, "|", error.retryable)
there is no table at memory://docs/nowhere: .hoodie/hoodie.properties is missing | False

```

A command prints message and hint, and ends with the exit code of the class: 0 is success, 1 an unexpected error, 2
wrong usage, 20 a key that is not there. `lakebed --traceback COMMAND` shows where the error arose. For a symptom
without an error see the [runbook](runbook.md).

| error | exit code | try again | cause |
|---|---|---|---|
"""


def errors_page() -> str:
    """The text of docs/errors.md: a table of all classes, then one section for each."""
    classes = _classes()
    parts = [_HEAD]
    for cls in classes:
        row = (f"[{cls.__name__}](#{cls.__name__.lower()})", str(cls.exit_code), _again(cls), _cause_and_cure(cls)[0])
        parts.append(f"| {' | '.join(row)} |\n")
    for cls in classes:
        cause, cure = _cause_and_cure(cls)
        parent = cls.__mro__[1]
        kind = "" if parent is LakebedError else f" It is an `{parent.__name__}`, too."
        parts.append(f"\n## {cls.__name__}\n\n**Cause.** {cause}{kind}\n\n**What to do.** {cure}\n")
    return "".join(parts)


def _classes() -> list[type[LakebedError]]:
    public = [getattr(lakebed, name) for name in lakebed.__all__]
    errors = [
        one for one in public if inspect.isclass(one) and issubclass(one, LakebedError) and one is not LakebedError
    ]
    return sorted(errors, key=lambda cls: (cls.exit_code, len(cls.__mro__)))


def _again(cls: type[LakebedError]) -> str:
    return "yes" if cls.retryable else "as `error.retryable`" if "`retryable`" in (cls.__doc__ or "") else "no"


def _cause_and_cure(cls: type[LakebedError]) -> tuple[str, str]:
    """The first paragraph of the docstring, and the others, each on one line."""
    cause, _, cure = (inspect.getdoc(cls) or "").partition("\n\n")
    return " ".join(cause.split()), _PAGE.sub(r"[\1](\1.md)", " ".join(cure.split()))
