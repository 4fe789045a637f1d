"""Plan and body of a restore: which instants are taken back, and what was deleted for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakebed.format.avro.encoder import write_avro_file
from lakebed.model import Action, Instant, State
from lakebed.timeline.avro_schemas import schema_text

_PLAN_VERSION = 2
_ACTIONS = frozenset(action.value for action in Action)


def encode_restore_plan(instants: Sequence[Instant], to: str) -> bytes:
    """The requested body of a restore to the instant `to`, which takes these back in this order."""
    record = {
        "instantsToRollback": [_info(instant) for instant in instants],
        "version": _PLAN_VERSION,
        "savepointToRestoreTimestamp": to,
    }
    return write_avro_file(schema_text("HoodieRestorePlan"), record)


def planned_rollbacks(plan: Mapping[str, Any]) -> list[Instant]:
    """The instants that a restore's plan takes back, in its order; all as pending, whatever they are."""
    found: list[Instant] = []
    for info in plan.get("instantsToRollback") or ():
        time, action = (info.get("commitTime"), info.get("action")) if isinstance(info, dict) else (None, None)
        if isinstance(time, str) and time.isdigit() and action in _ACTIONS:
            found.append(Instant(time, Action(action), State.INFLIGHT))
    return found


def restored_instant(plan: Mapping[str, Any]) -> str:
    """The requested time of the instant that a restore goes back to; empty where its plan does not say."""
    return str(plan.get("savepointToRestoreTimestamp") or "")


def encode_restore_metadata(
    instant: str, instants: Sequence[Instant], rollbacks: Mapping[str, Sequence[Mapping[str, Any]]], millis: int
) -> bytes:
    """The completed body of the restore `instant`, with the decoded bodies of the rollbacks of each instant."""
    record = {
        "startRestoreTime": instant,
        "timeTakenInMillis": millis,
        "instantsToRollback": [one.time for one in instants],
        "hoodieRestoreMetadata": {time: list(bodies) for time, bodies in rollbacks.items()},
        "version": 1,
        "restoreInstantInfo": [_info(one) for one in instants],
    }
    return write_avro_file(schema_text("HoodieRestoreMetadata"), record)


def _info(instant: Instant) -> dict[str, str]:
    return {"commitTime": instant.time, "action": instant.action.value}
