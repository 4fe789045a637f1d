"""`lakebed inspect`: what it says where it cannot start."""

from __future__ import annotations

import socket
import sys

import pytest

import lakebed
from lakebed.cli.main import invoke


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lakebed.create("memory://cli-inspect/port", {"id": [1]}, key="id")
        assert invoke(["inspect", "memory://cli-inspect/port", "--port", str(port)]) == 5
    said = capsys.readouterr().err
    assert f"port {port} cannot be used" in said
    assert "--port 0" in said


def test_a_missing_package_names_the_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for module in ("lakebed.inspector.server", "lakebed.web_server"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert invoke(["inspect", "memory://cli-inspect/none"]) == 6
    said = capsys.readouterr().err
    assert "the inspector needs the package uvicorn" in said
    assert "pip install 'lakebed[inspect]'" in said


def test_a_folder_without_a_table_starts_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["inspect", "memory://cli-inspect/none", "--port", "0"]) != 0
    assert "there is no table at memory://cli-inspect/none" in capsys.readouterr().err
