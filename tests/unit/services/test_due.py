"""The list of table services: each is there once, and the settings that it names exist."""

from __future__ import annotations

from operator import attrgetter

import pytest

from lakebed.config.options import resolve_options
from lakebed.services.driver import PlannedService, Service
from lakebed.services.due import SERVICES


def test_every_service_has_a_name_of_its_own() -> None:
    names = [service.name for service in SERVICES]
    assert names == [
        *("rollback", "indexing", "metadata", "clean", "archive", "compact", "log_compact", "cluster"),
        *("merge_small_files", "expire_partitions", "publish", "catalog-sync"),
    ]
    assert len({service.title for service in SERVICES}) == len(SERVICES)


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_the_settings_that_a_service_names_are_switches_and_a_number(service: Service[object]) -> None:
    settings = resolve_options({})
    switches = [*service.after_write, service.plan_after_write]
    if isinstance(service, PlannedService):
        switches += service.asked_by
    for name in filter(None, switches):
        # publication is on for the formats that its setting names
        assert attrgetter(name)(settings) in ((), True, False, None), name
    if service.due_over:
        assert attrgetter(service.due_over)(settings) in (settings.archival.above, settings.cleaning.commits)


def test_no_clean_is_due_up_to_the_number_of_retained_commits() -> None:
    assert resolve_options({"hoodie.clean.commits.retained": 4}).cleaning.due_over == 4


@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"},
        {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS"},
    ],
)
def test_under_another_policy_the_number_of_commits_does_not_tell_whether_a_clean_is_due(
    options: dict[str, str],
) -> None:
    assert resolve_options(options).cleaning.due_over == 0
