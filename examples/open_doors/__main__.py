"""`make demo-doors`: one warehouse of real flights, and every door to it. Each engine prints the same sums."""

from __future__ import annotations

import sys
import tempfile

from open_doors.run import run

sys.exit(run(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp() + "/warehouse"))
