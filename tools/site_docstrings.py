"""What mkdocstrings reads of a docstring: examples as code blocks, as on docs/api.md."""

from __future__ import annotations

from typing import Any

import griffe
from reference_pages import fenced_examples


class FencedExamples(griffe.Extension):
    """Puts the examples of each docstring into code blocks."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced_examples(obj.docstring.value)
