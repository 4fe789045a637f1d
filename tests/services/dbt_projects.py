"""Projects of dbt, whose commands run as processes in an environment of their own in the cache."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .service import installed_environment

_ROOT = Path(__file__).parents[2]
LOCK = _ROOT / "locks" / "dbt.txt"
PACKAGE = _ROOT / "src" / "lakebed" / "dbt_plugin" / "package"
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def install_dbt() -> Path:
    """The interpreter of the environment, made again where the lock file has changed since."""
    return installed_environment("dbt", LOCK, "dbt-core and dbt-duckdb")


PROJECT = """
name: shop
profile: shop
config-version: 2
model-paths: [models]
"""
PACKAGES = """
packages:
  - local: "{{ env_var('LAKEBED_DBT') }}"
"""
PROFILE = """
shop:
  target: dev
  outputs:
    dev:
      type: duckdb
      path: "{{ env_var('SHOP_DB', 'shop.duckdb') }}"
      schema: mart
      threads: 4
      plugins:
        - module: lakebed.dbt_plugin
          alias: lakebed
          config:
            warehouse: WAREHOUSE
"""


@dataclass
class DbtProject:
    """A project in a folder, with the files given by their paths; those that every project needs are added."""

    python: Path
    folder: Path
    warehouse: str

    def write(self, files: dict[str, str]) -> None:
        every = {"dbt_project.yml": PROJECT, "packages.yml": PACKAGES, "profiles.yml": PROFILE}
        for name, text in {**every, **files}.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("WAREHOUSE", self.warehouse))

    def command(self, *arguments: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """What a command of dbt answered; its output has no colors. `before` is Python that runs first in its
        process."""
        script = f"import sys\n{before}\nfrom dbt.cli.main import cli\nsys.argv[0] = 'dbt'\ncli()\n"
        return subprocess.run(
            [str(self.python), "-c", script, *arguments],
            cwd=self.folder,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith(("DBT_", "LAKEBED_"))},
                "PYTHONPATH": str(_ROOT / "src"),
                "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
                "DBT_USE_COLORS": "false",
                "LAKEBED_DBT": str(PACKAGE),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )

    def dbt(self, *arguments: str, **environment: str) -> str:
        """The output of a command of dbt that succeeds."""
        done = self.command(*arguments, **environment)
        assert done.returncode == 0, _COLORS.sub("", done.stdout + done.stderr)[-6000:]
        return _COLORS.sub("", done.stdout)

    def refused(self, *arguments: str, **environment: str) -> str:
        """The output of a command of dbt that fails."""
        done = self.command(*arguments, **environment)
        output = _COLORS.sub("", done.stdout + done.stderr)
        assert done.returncode != 0, output[-6000:]
        return output

    def results(self) -> dict[str, tuple[str, str]]:
        """The status and the message of each node of the last run, by its name."""
        results: list[dict[str, Any]] = json.loads((self.folder / "target" / "run_results.json").read_text())["results"]
        return {each["unique_id"].split(".")[2]: (each["status"], each["message"]) for each in results}

    def duckdb(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query in the project's own database file."""
        import duckdb

        with duckdb.connect(str(self.folder / "shop.duckdb"), read_only=True) as connection:
            return connection.sql(query).fetchall()
