"""Tables that commands print."""

from __future__ import annotations

import pytest

from lakebed.cli.output import Form, show_records


@pytest.mark.parametrize("length", [10, 3_000])
def test_a_long_text_next_to_one_that_is_not_ascii_is_printed_at_once(
    length: int, capsys: pytest.CaptureFixture[str]
) -> None:
    show_records([{"name": "é", "more": 1}, {"name": "x" * length, "more": None}], ["name", "more"], Form.TABLE)
    assert capsys.readouterr().out == f"{'name'.ljust(length)}  more\n{'é'.ljust(length)}  1\n{'x' * length}\n"
