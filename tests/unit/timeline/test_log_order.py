"""The order of a slice's log files, and the log files that a version 6 rollback plan names."""

from __future__ import annotations

from lakebed.format.file_names import parse_log_file
from lakebed.timeline.bodies.rollback import rollback_files, rollback_logs
from lakebed.timeline.file_slices import latest_slices


def test_write_tokens_are_compared_as_text() -> None:
    names = [
        ".f_1.log.1_10-0-1",
        ".f_1.log.1_2-0-1",
        ".f_1.log.2_1-0-1",
        ".f_1.log.10_0-0-1",
        ".f_2.log.1_0-0-1",
    ]
    logs = [log for name in reversed(names) if (log := parse_log_file("p", name, 1))]
    (found,) = latest_slices(
        [],
        logs,
        version=9,
        is_visible=lambda _: True,
        completion_time=lambda instant: instant,
        replaced=(),
        pending_compactions={},
    )
    assert [log.name for log in found.log_files] == names


def test_log_files_of_a_rollback_plan_by_absolute_paths() -> None:
    requests = [
        {
            "partitionPath": "a/b",
            "logBlocksToBeDeleted": {"file:/tmp/t/a/b/.f_1.log.2_1-0-1": 7, ".g_1.log.1_1-0-1": 9},
        },
        {"partitionPath": "", "logBlocksToBeDeleted": {"/tmp/t/.h_1.log.1_1-0-1": 3}, "filesToBeDeleted": ["/tmp/t/x"]},
    ]
    plan = {"RollbackRequests": requests}
    assert rollback_logs(plan) == {"a/b/.f_1.log.2_1-0-1": 7, "a/b/.g_1.log.1_1-0-1": 9, ".h_1.log.1_1-0-1": 3}
    assert rollback_files(plan) == ["x"]
