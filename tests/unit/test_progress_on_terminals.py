"""A real terminal shows what a call does within seconds of silence, for each call that may take long."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.sampling import some

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


# Calls over a store that answers the first request of an instant when the test says how: "answer" or "fail".
SLOW = """
import sys
import lakebed
from lakebed.cli.main import invoke
from lakebed.storage.base import refused
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.opening import wrapping

class Slow(WrappedStorage):
    waits = True

    def _before(self, verb, path):
        if Slow.waits and path.startswith(".hoodie/timeline/") and ".requested" in path and "read" not in verb:
            Slow.waits = False
            print("waits", flush=True)
            if sys.stdin.readline().strip() == "fail":
                raise refused("the store refuses", "try later", url="s3://lake")

folder, uri, verb, words = sys.argv[1], sys.argv[2], sys.argv[3], {"progress": sys.argv[4] == "shown"}
quiet = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False}
if verb not in ("load", "convert", "convert in place"):
    table = lakebed.load(uri, folder, key="id", type="mor", properties=quiet)
    for _ in range(5):
        table.upsert({"id": [1, 2]})
with wrapping(Slow):
    if verb == "load":
        print(repr(lakebed.load(uri, folder, key="id", **words)))
    elif verb == "convert":
        print(repr(lakebed.convert(folder, uri, key="id", **words)))
    elif verb == "convert in place":
        print(repr(lakebed.convert(folder, uri, key="id", in_place=True, **words)))
    elif verb == "services":
        due = ["--option", "hoodie.compact.inline=true", "--option", "hoodie.compact.inline.max.delta.commits=5"]
        sys.exit(invoke(["maintenance", "run", uri, "--once", *due]))
    elif verb == "erase":
        print(lakebed.open(uri).erase([1], **words))
    else:
        print(getattr(lakebed.open(uri).maintenance, verb)(**words))
"""


def screen(text: str) -> list[str]:
    """The lines that a terminal has at the end of what was written to it."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part[0] == "\x1b":
            row = max(0, row - int(part[2:-1] or 1))
        elif part.endswith("K") and part[0] == "\x1b":
            lines[row] = ""
        elif part[0] != "\x1b":
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines if line.strip()]


class Call:
    """A call of lakebed whose standard error is a terminal."""

    def __init__(self, *arguments: str, code: str = CALL) -> None:
        self.terminal, other = pty.openpty()
        pipe = subprocess.PIPE
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        command = [sys.executable, "-c", code, *arguments]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=other, env=environment, text=True)
        os.close(other)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def wait(self) -> None:
        """Until the store waits; a line before that is an event of the services."""
        while (line := self.line()) != "waits":
            assert "is due" in line

    def shown(self, seconds: float) -> str:
        """What the terminal shows within so many seconds: until the first word, empty for nothing."""
        end, text = time.monotonic() + seconds, ""
        while not re.search("[a-z]{3}", text) and (left := end - time.monotonic()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                text += os.read(self.terminal, 4096).decode()
        self.before = text
        return text

    def end(self, answer: str) -> tuple[int, str, list[str]]:
        """Exit code, output and the lines that are left on the terminal after this answer."""
        written: list[bytes] = []

        def read() -> None:
            with suppress(OSError):  # the end of a terminal
                while text := os.read(self.terminal, 4096):
                    written.append(text)

        reader = threading.Thread(target=read)
        reader.start()
        done, _ = self.process.communicate(f"{answer}\n", timeout=60)
        reader.join()
        os.close(self.terminal)
        self.raw = self.before + b"".join(written).decode()
        return self.process.returncode, done, screen(self.raw)

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


WORK = {
    "load": "working|loading|reading rows|writing",
    "convert": "working|listing|reading rows|writing",
    "convert in place": "working|listing|writing keys",
    "erase": "working|erasing|deleting|writing",
    "compact": "working|compact",
    "services": "looking at the tables|compact|clean",
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"id": range(6)}), tmp_path / "files" / "a.parquet")
    return str(tmp_path / "files")


@pytest.mark.parametrize("verb", WORK)
def test_a_terminal_shows_work_in_a_slow_store_and_is_clean_after_it(verb: str, folder: str, tmp_path: Path) -> None:
    call = Call(folder, str(tmp_path / "t"), verb, "shown", code=SLOW)
    call.wait()
    assert re.search(WORK[verb], call.shown(60))
    time.sleep(0.5)  # the seconds of a write begin a little after those of the call
    code, done, left = call.end("answer")
    assert (code, left) == (0, []), done
    assert call.raw.rindex("\x1b[?25h") > call.raw.rindex("\x1b[?25l")  # the cursor is there again
    if verb not in ("compact", "services"):  # whose results have the time of the run, without that of the plan
        took = [float(seconds) for seconds in re.findall(r"(\d+\.\d\d) s", done)]
        assert max(took) >= 2.0, done  # the store took longer than nothing is shown


@pytest.mark.parametrize("verb", some(list(WORK), "services"))
def test_a_terminal_is_clean_after_an_error(verb: str, folder: str, tmp_path: Path) -> None:
    call = Call(folder, str(tmp_path / "t"), verb, "shown", code=SLOW)
    call.wait()
    assert re.search(WORK[verb], call.shown(60))
    code, done, left = call.end("fail")
    text = "\n".join(left)
    assert code != 0
    assert "the store refuses" in text + done
    assert not re.search(r"\d:\d\d:\d\d$|[⠁-⣿━]", text, re.MULTILINE)
    assert call.raw.rindex("\x1b[?25h") > call.raw.rindex("\x1b[?25l")


@pytest.mark.parametrize("verb", some(list(WORK), "erase"))
def test_a_terminal_is_clean_after_an_interrupt(verb: str, folder: str, tmp_path: Path) -> None:
    call = Call(folder, str(tmp_path / "t"), verb, "shown", code=SLOW)
    call.wait()
    assert re.search(WORK[verb], call.shown(60))
    call.process.send_signal(signal.SIGINT)
    code, done, left = call.end("answer")
    text = "\n".join(left)
    if verb == "services":  # it ends after the service that runs
        assert (code, left) == (0, []), done
    else:
        assert code != 0
        assert "KeyboardInterrupt" in text
    assert not re.search(r"\d:\d\d:\d\d$|[⠁-⣿━]", text, re.MULTILINE)
    assert call.raw.rindex("\x1b[?25h") > call.raw.rindex("\x1b[?25l")


@pytest.mark.parametrize("verb", some([verb for verb in WORK if verb != "services"], "compact"))
def test_a_terminal_shows_nothing_of_these_without_progress(verb: str, folder: str, tmp_path: Path) -> None:
    call = Call(folder, str(tmp_path / "t"), verb, "silent", code=SLOW)
    call.wait()
    assert call.shown(2.5) == ""
    assert call.end("answer")[::2] == (0, [])
