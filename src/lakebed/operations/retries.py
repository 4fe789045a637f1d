"""A write that lost against a concurrent one is planned anew and run again, from what the other one wrote."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lakebed.config.options import service_settings
from lakebed.engine.arrow_data import to_arrow_table
from lakebed.engine.spark_session import session_of
from lakebed.errors import CommitConflict
from lakebed.operations.context import WriteContext
from lakebed.operations.result import WriteResult
from lakebed.slices.reopening import MISSING, MOST_LOOKS, as_damage, is_of_table, path_of, reopened

RETRIES = "hoodie.write.num.retries.on.conflict.failures"

_log = logging.getLogger("lakebed")
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0


def run_again(
    make_context: Callable[[], WriteContext], verb: Callable[[WriteContext, Any], WriteResult], data: Any
) -> tuple[WriteContext, WriteResult]:
    """Run a verb, and again after a `CommitConflict` as often as the job or the table allows; gives the context of the
    run that committed, too. Nothing of a run that lost is visible, so each begins with the table as it is then.

    A DataFrame is evaluated anew by each run. Data that can be read only once is held.
    """
    lost = 0
    looks, found = 0, ""
    context: WriteContext | None = None
    while True:
        try:
            context = make_context()
            if lost == 0 and _is_read_once(data) and retries_of(context):
                data = to_arrow_table(data)
            result = verb(context, data)
        except MISSING as error:
            # an action left the timeline, or a file was cleaned, while the write was planned
            looks += 1
            if context is None or not is_of_table(error, context.storage):
                raise
            if str(error) == found or reopened(context.opened) is None:
                raise as_damage(error, context.storage) from error
            if looks > MOST_LOOKS or _is_read_once(data):
                raise _overtaken(error) from error
            found = str(error)  # the same file missing twice is damage
            _log.info("run again, since the table changed: %s", error)
            continue
        except CommitConflict as conflict:
            assert context is not None
            if lost >= retries_of(context):
                if lost:
                    conflict.context["retries"] = lost
                raise
            pause = _pause(lost)
            lost += 1
            _log.info("run again in %.1f s (%d of %d): %s", pause, lost, retries_of(context), conflict.message)
            time.sleep(pause)
            continue
        return context, replace(result, retries=lost) if lost else result


def retries_of(context: WriteContext) -> int:
    """How often a write that lost is run again, as its options say, else as the table does."""
    return service_settings(context.options.given, context.config.properties).retries.on_conflict


def asking_for(retries: int | None, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The options of a write with the number of retries that its caller gave."""
    return options if retries is None else {**(options or {}), RETRIES: retries}


def _overtaken(error: Exception) -> CommitConflict:
    path = path_of(error)
    return CommitConflict(
        f"{path} was deleted while this write was planned or written: another process cleaned the table, archived its"
        " timeline or rolled a commit back",
        hint="Nothing of it is visible; run it again. A higher hoodie.clean.commits.retained keeps files for slow"
        " writers.",
        context={"path": path},
    )


def _pause(lost: int) -> float:
    """Seconds to wait after so many runs that lost before this one: twice as long each time, and never the same, so
    that writers that met do not meet again."""
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0**lost)
    return longest * random.uniform(0.5, 1.0)


def _is_read_once(data: Any) -> bool:
    return session_of(data) is None and hasattr(data, "read_next_batch")
