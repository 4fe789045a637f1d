"""`lakebed serve` as a process: what it prints, the token, addresses that are refused, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.model import WAREHOUSE

TOKEN = "a-token-of-this-test"


def test_the_process_serves_the_warehouse_to_who_has_the_token_until_it_is_stopped(tmp_path: Path) -> None:
    lakebed.load(str(tmp_path / "lake/sales/orders"), {"id": [1]}, key="id", progress=False)
    (tmp_path / "token").write_text(f"{TOKEN}\n", "utf-8-sig")  # as editors of Windows write it
    command = [sys.executable, "-m", "lakebed", "serve", "--port", "0", "--token-file", str(tmp_path / "token")]
    environment = {**os.environ, WAREHOUSE: str(tmp_path / "lake")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"catalog of {tmp_path}/lake: http://127.0.0.1:")
        connection = HTTPConnection(urlsplit(line.split()[3]).netloc, timeout=60)
        answers: list[tuple[int, object]] = []
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            connection.request("GET", "/v1/namespaces/sales/tables", headers=headers)
            response = connection.getresponse()
            answers.append((response.status, json.loads(response.read())))
        assert answers[0][0] == 401
        assert answers[1] == (200, {"identifiers": [{"namespace": ["sales"], "name": "orders"}]})
        connection.close()
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=60)
        assert '"GET /v1/namespaces/sales/tables" 200' in logged
        assert TOKEN not in logged
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_cannot_start_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WAREHOUSE, raising=False)
    wrong = lakebed.InvalidOption.exit_code
    assert invoke(["serve"]) == wrong
    assert WAREHOUSE in capsys.readouterr().err
    (tmp_path / "empty").write_text("")
    (tmp_path / "short").write_text("short")
    for arguments, text in (
        (["--address", "0.0.0.0"], "without a token"),
        (["--token-file", str(tmp_path / "empty")], "is empty"),
        (["--token-file", str(tmp_path / "missing")], "cannot be read"),
        (["--token-file", str(tmp_path / "short")], "fewer than 16"),
    ):
        assert invoke(["serve", "--warehouse", str(tmp_path), "--port", "0", *arguments]) == wrong
        assert text in capsys.readouterr().err
