"""The Avro schemas of the timeline bodies that lakebed writes, as Hudi's Java classes embed them: `schemas/*.avsc`.

Bodies are always decoded with the schema embedded in the file; these are for encoding only.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

# read as the module is imported: later the process may be short of file descriptors
_TEXTS = {
    file.name.removesuffix(".avsc"): file.read_text(encoding="utf-8")
    for file in (files("lakebed.timeline") / "schemas").iterdir()
}


@cache
def schema_text(name: str) -> str:
    """The schema of a record such as `HoodieCommitMetadata` as compact JSON.

    >>> schema_text("HoodieRollbackPlan")[:44]
    '{"type":"record","name":"HoodieRollbackPlan"'
    """
    return json.dumps(json.loads(_TEXTS[name]), separators=(",", ":"))
