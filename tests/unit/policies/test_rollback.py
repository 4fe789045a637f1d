"""What a rollback removes, and which pending rollbacks are not run."""

from __future__ import annotations

import pytest

from lakebed.model import Action, Instant, State
from lakebed.policies.rollback import files_of_instant, is_void, plan_rollback_by_paths
from support.instants_in_words import base_file, log_file

AT, BEFORE, RESIZE = "20260101000000002", "20260101000000001", "20260101000000000"
TARGET = Instant(AT, Action.DELTACOMMIT, State.INFLIGHT)
OWN_BASE, OLD_BASE = (f"p/f_0-1-0_{time}.parquet" for time in (AT, BEFORE))
OWN_LOG, OLD_LOG, RESIZE_LOG = (f"p/.f_{time}.log.1_0-1-0" for time in (AT, BEFORE, RESIZE))
RESIZE_BASE = f"p/f_0-1-0_{RESIZE}.parquet"


@pytest.mark.parametrize(
    ("paths", "logs", "resizes", "files", "hidden"),
    [
        ([OWN_LOG, OWN_BASE], [OWN_LOG], [], [OWN_LOG, OWN_BASE], []),
        ([OWN_BASE, OWN_BASE], [], [], [OWN_BASE], []),
        ([OLD_BASE, OLD_LOG], [OLD_LOG], [], [], [OLD_LOG]),  # those of other instants stay, whoever names them
        (["../f_0-1-0_" + AT + ".parquet", ".hoodie/f_0-1-0_" + AT + ".parquet", "p/readme"], [], [], [], []),
        ([RESIZE_LOG, RESIZE_BASE], [RESIZE_LOG], [RESIZE], [RESIZE_LOG], []),  # copies in a resize's new groups
        ([RESIZE_LOG], [RESIZE_LOG], [], [], [RESIZE_LOG]),
        ([OWN_BASE], [], [], [OWN_BASE], []),
        ([OWN_BASE, OLD_LOG], [OLD_LOG], [], [OWN_BASE], [OLD_LOG]),  # blocks behind those of earlier instants
        ([OWN_LOG], [OWN_LOG], [], [OWN_LOG], []),  # a log file of a slice that the target began
        ([OLD_LOG], ["p/readme"], [], [], []),
    ],
)
def test_by_the_files_that_markers_name(
    paths: list[str], logs: list[str], resizes: list[str], files: list[str], hidden: list[str]
) -> None:
    plan = plan_rollback_by_paths(TARGET, paths, logs, resizes=resizes)
    assert (plan.target, list(plan.files), list(plan.logs)) == (TARGET, files, hidden)


def test_a_plan_prints_what_it_removes() -> None:
    plan = plan_rollback_by_paths(TARGET, [OWN_BASE], [OLD_LOG])
    assert str(plan) == f"rollback of deltacommit {AT}: 1 file deleted, blocks in 1 log file hidden"


@pytest.mark.parametrize(("logs", "expected"), [(True, ["f", "g"]), (False, ["f"])])
def test_a_rollback_names_the_files_of_its_target(logs: bool, expected: list[str]) -> None:
    files = [base_file("f", AT), base_file("f", BEFORE), log_file("g", AT), log_file("f", BEFORE)]
    assert [file.file_id for file in files_of_instant(files, AT, logs=logs)] == expected


@pytest.mark.parametrize(("target", "expected"), [("", True), (BEFORE, True), (AT, False)])
def test_rollbacks_that_are_not_run(target: str, expected: bool) -> None:
    assert is_void(target, lambda time: time == BEFORE) is expected
