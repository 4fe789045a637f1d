"""Years, months and days of NumPy arrays of days since 1970-01-01 (proleptic Gregorian, any year of an int64 day)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

DAY_MILLIS = 86_400_000


def civil_of_days(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Year, month and day of month.

    >>> [part.tolist() for part in civil_of_days(np.array([0, -1, 19756]))]
    [[1970, 1969, 2024], [1, 12, 2], [1, 31, 3]]
    """
    months = days.astype("M8[D]").astype("M8[M]")
    first_day = months.astype("M8[D]").astype(np.int64)
    since_1970 = months.astype(np.int64)
    return since_1970 // 12 + 1970, since_1970 % 12 + 1, days - first_day + 1


def days_of_civil(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Days since 1970-01-01 of valid dates (a day past the month's end runs into the next month).

    >>> int(days_of_civil(np.array([2024]), np.array([2]), np.array([3]))[0])
    19756
    """
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    return months.astype("M8[D]").astype(np.int64) + day - 1


def iso_week(days: Int64s) -> tuple[Int64s, Int64s]:
    """ISO week-based year and week of that year.

    >>> [part.tolist() for part in iso_week(np.array([0, 19722]))]
    [[1970, 2023], [1, 52]]
    """
    thursday = days - day_of_week(days) + 4
    year = civil_of_days(thursday)[0]
    ones = np.ones_like(year)
    return year, (thursday - days_of_civil(year, ones, ones)) // 7 + 1


def day_of_week(days: Int64s) -> Int64s:
    """1 for Monday to 7 for Sunday."""
    return (days + 3) % 7 + 1
