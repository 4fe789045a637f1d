"""Examples with dlt: no telemetry, and nothing in the home."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quiet_dlt(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path_factory.getbasetemp() / "dlt"))
