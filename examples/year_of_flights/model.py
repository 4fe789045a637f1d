"""What the table must hold: a plain model of every write, and the final state straight from the input, by polars."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from year_of_flights.flights import KEY, event_times
from year_of_flights.year import Step


@dataclass(frozen=True)
class Counts:
    """What a write must report."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0


@dataclass(frozen=True)
class State:
    """The rows after some writes; column `written` is the number of the write that each row is from."""

    rows: pl.DataFrame
    writes: int = 0

    @property
    def table(self) -> pl.DataFrame:
        return self.rows.drop("written")

    def after(self, step: Step) -> tuple[State, Counts]:
        """The state after one more write, and what that write must report."""
        number = self.writes + 1
        if step.operation == "delete":
            return self._after_delete(step, number)
        latest = step.rows.sort("event_time", maintain_order=True).unique(KEY, keep="last", maintain_order=True)
        if not self.writes:
            return State(latest.with_columns(written=pl.lit(number)), number), Counts(inserted=latest.height)
        known = self.rows.select(*KEY, stored="event_time")
        judged = latest.join(known, on=KEY, how="left")
        loses = (pl.col("event_time") < pl.col("stored")).fill_null(False)
        winners = judged.filter(~loses)
        inserted = winners.filter(pl.col("stored").is_null()).height
        kept = self.rows.join(winners.select(KEY), on=KEY, how="anti")
        rows = pl.concat([kept, winners.drop("stored").with_columns(written=pl.lit(number))])
        counts = Counts(inserted, winners.height - inserted, 0, judged.height - winners.height)
        return State(rows, number), counts

    def _after_delete(self, step: Step, number: int) -> tuple[State, Counts]:
        if step.predicate is not None:
            rows = self.rows.filter(~pl.sql_expr(step.predicate))
            return State(rows, number), Counts(deleted=self.rows.height - rows.height)
        rows = self.rows.join(step.rows.select(KEY), on=KEY, how="anti")
        deleted = self.rows.height - rows.height
        return State(rows, number), Counts(deleted=deleted, unchanged=step.rows.height - deleted)


def final_state(flights: pl.DataFrame) -> pl.DataFrame:
    """The rows at the end of the year, computed from the input alone: batches and their order play no part."""
    landed = pl.col("landed").is_not_null()
    return (
        event_times(flights)
        .filter(pl.col("dep_time").is_not_null())
        .select(
            *flights.columns,
            status=pl.when(landed).then(pl.lit("arrived")).otherwise(pl.lit("departed")),
            event_time=pl.coalesce("landed", "left"),
        )
    )
