"""The pictures of docs/tour.md, of the table that the page itself makes: `python tools/tour_pictures.py docs`.

They show times, so each run draws others; docs/images has those of one run.
"""

from __future__ import annotations

import doctest
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakebed import Table

# After which block of examples a picture is drawn, of the page's table `t`.
_DRAWN: dict[int, tuple[str, Callable[[Table], str]]] = {
    1: ("tour_files.svg", lambda t: t.files.skew().plot()),
    2: ("tour_timeline.svg", lambda t: t.timeline.plot()),
    5: ("tour_ranges.svg", lambda t: t.indexes.ranges().plot("distance")),
}
_GREY = "#808080"


def main(folder: Path) -> None:
    """Run the examples of `folder/tour.md` and write the pictures into `folder/images`."""
    names: dict[str, Any] = {}
    blocks = (folder / "tour.md").read_text(encoding="utf-8").split("```python\n")[1:]
    for number, text in enumerate(blocks):
        block = doctest.DocTestParser().get_doctest(text.partition("```")[0], names, f"block {number}", "tour.md", 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        if runner.run(block, clear_globs=False).failed:
            raise SystemExit("an example of tour.md fails")
        names = block.globs
        if number in _DRAWN:
            name, draw = _DRAWN[number]
            _write(folder, name, draw(names["t"]))


def _write(folder: Path, name: str, picture: str) -> None:
    """Colours that go by the page around a picture are grey in a file of its own."""
    (folder / "images" / name).write_text(picture.replace("currentColor", _GREY) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
