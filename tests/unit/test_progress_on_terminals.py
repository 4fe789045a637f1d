"""A real terminal shows what a call does within seconds of silence, for each call that may take long."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.rest

# Rows whose second half is sent when the test asks for it.
CALL = """
import sys
import pyarrow as pa
import lakebed

def batches():
    yield pa.record_batch({"id": list(range(3))})
    print("waits", flush=True)
    sys.stdin.readline()
    yield pa.record_batch({"id": list(range(3, 5))})

schema = pa.schema([("id", pa.int64())])
rows = pa.RecordBatchReader.from_batches(schema, batches())
uri, verb, words = sys.argv[1], sys.argv[2], {"progress": sys.argv[3] == "shown"}
if verb == "load":
    table = lakebed.load(uri, rows, key="id", **words)
else:
    table = lakebed.create(uri, schema, key="id")
    getattr(table, verb)(rows, **words)
print("rows", table.count(), flush=True)
"""


class Call:
    """A call of lakebed whose standard error is a terminal."""

    def __init__(self, *arguments: str) -> None:
        self.terminal, other = pty.openpty()
        pipe = subprocess.PIPE
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        command = [sys.executable, "-c", CALL, *arguments]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=other, env=environment, text=True)
        os.close(other)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def shown(self, seconds: float) -> str:
        """What the terminal shows within so many seconds: until the first word, empty for nothing."""
        end, text = time.monotonic() + seconds, ""
        while not re.search("[a-z]{3}", text) and (left := end - time.monotonic()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                text += os.read(self.terminal, 4096).decode()
        return text

    def go_on(self) -> list[str]:
        done, _ = self.process.communicate("\n", timeout=60)
        os.close(self.terminal)
        assert self.process.returncode == 0
        return done.split("\n")


@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "load"])
def test_a_terminal_shows_the_call_while_its_rows_are_awaited(verb: str, tmp_path: Path) -> None:
    call = Call(str(tmp_path / "t"), verb, "shown")
    assert call.line() == "waits"
    assert re.search("working|reading rows", call.shown(60))
    assert "rows 5" in call.go_on()


def test_a_terminal_shows_nothing_of_a_call_without_progress(tmp_path: Path) -> None:
    call = Call(str(tmp_path / "t"), "upsert", "silent")
    assert call.line() == "waits"
    assert call.shown(2.8) == ""
    assert "rows 5" in call.go_on()
