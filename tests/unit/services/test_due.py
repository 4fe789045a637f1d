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
        *("rollback", "indexing", "clean", "archive", "compact", "log_compact", "cluster"),
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
        assert attrgetter(service.due_over)(settings) == settings.archival.above
