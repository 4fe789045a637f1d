"""Talking to the oracle process: requests out, Arrow tables in."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oracle.environment import OracleEnvironment, Unavailable


class OracleError(Exception):
    """Real Hudi failed; the text is its own message."""


class HudiOracle:
    """Real Hudi 1.2.0 in one process: start it once a session, ask it many times."""

    def __init__(self, environment: OracleEnvironment, log: Path, env: Mapping[str, str] | None = None) -> None:
        """`env` is added to the process's environment."""
        self._folder = tempfile.TemporaryDirectory(prefix="oracle-rows-")
        self._files = 0
        self._log = log
        with log.open("w") as noise, environment.starting():
            self._process = subprocess.Popen(
                environment.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                text=True,
                env={**os.environ, **(env or {})},
            )
            try:
                self.version = str(self._answer()["hudi"])
            except (OracleError, EOFError) as error:
                self.close()
                raise Unavailable(f"the oracle does not start: {error} (log: {log})") from error

    def ask(self, cmd: str, **request: Any) -> dict[str, Any]:
        """One request, as `hudi_oracle.py` describes them; raises OracleError where Hudi failed."""
        given = {key: str(value) if isinstance(value, Path) else value for key, value in request.items()}
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(json.dumps({"cmd": cmd, **given}) + "\n")
        pipe.flush()
        return self._answer()

    def read(self, table: Path | str, **request: Any) -> pa.Table:
        """The snapshot, meta columns included, sorted by record key.

        `as_of=`, `query_type=`, `where=`, `option=`, and `conf=` for settings of the session, as for all requests.
        """
        return self._rows("read", table=table, **request)

    def incremental(self, table: Path | str, begin: str, end: str | None = None, **request: Any) -> pa.Table:
        return self._rows("incremental", table=table, begin=begin, end=end, **request)

    def problems(self, table: Path | str, **request: Any) -> list[dict[str, Any]]:
        """What is wrong with the table's metadata table, as real Hudi reads it: nothing, if all is well."""
        return self.ask("validate_metadata", table=table, **request)["problems"]

    def write(
        self,
        table: Path | str,
        rows: pa.Table,
        operation: str = "upsert",
        options: Mapping[str, str] | None = None,
        mode: str = "append",
        **request: Any,
    ) -> list[dict[str, Any]]:
        """Write rows; gives the instants that appeared. The table's own settings need not be repeated."""
        data = self._file()
        pq.write_table(rows, data)
        answer = self.ask(
            "write",
            table=table,
            data=str(data),
            operation=operation,
            options=dict(options or {}),
            mode=mode,
            **request,
        )
        return answer["new_instants"]

    def close(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()

    def _rows(self, cmd: str, **request: Any) -> pa.Table:
        out = self._file()
        self.ask(cmd, out=str(out), **request)
        return pq.read_table(out, partitioning=None)

    def _file(self) -> Path:
        self._files += 1
        return Path(self._folder.name) / f"{self._files}.parquet"

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = self._log.read_text(errors="replace").strip().splitlines()[-3:]
            raise EOFError("the oracle ended: " + " / ".join(tail))
        answer = json.loads(line)
        if not answer["ok"]:
            raise OracleError(answer["error"])
        return answer["result"]
