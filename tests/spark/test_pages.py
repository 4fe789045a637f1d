"""The pages of docs/ whose examples need a Spark session."""

from __future__ import annotations

from typing import Any

import pytest

from documented_examples import PAGES_WITH_SPARK, examples_of


@pytest.mark.small_frames
@pytest.mark.parametrize("page", PAGES_WITH_SPARK)
def test_examples_of_a_page_give_what_they_say_on_spark(page: str, spark: Any) -> None:
    examples = examples_of(page, spark=spark)
    assert len(examples) >= 10
    for example in examples:
        example.evaluate()
