"""`make demo-vectors`: questions, and the topics of Python's manual that are nearest to them."""

from __future__ import annotations

import sys
import tempfile

from nearest_texts.run import run

for question, topics in run(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp() + "/topics").items():
    print(f"{question}\n  {', '.join(topics)}")
