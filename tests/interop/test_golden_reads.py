"""Every golden copy-on-write table, read without Spark. (The unit layer reads some of them.)"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_every_golden_table_reads_equal() -> None:
    tests = Path(__file__).resolve().parent.parent / "unit" / "read" / "test_golden_scans.py"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)],
        env=os.environ | {"LAKEBED_ALL_GOLDEN": "1"},
        cwd=tests.parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:]
