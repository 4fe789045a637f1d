"""The proleptic Gregorian calendar over NumPy arrays of days since 1970-01-01, for any year an int64 day can name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

DAY_MILLIS = 86_400_000
_DAYS_400_YEARS = 146_097
# 0000-03-01, the day counting from which leap days come last in a year
_EPOCH_SHIFT = 719_468


def civil_of_days(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Year, month and day of month.

    >>> [part.tolist() for part in civil_of_days(np.array([0, -1, 19756]))]
    [[1970, 1969, 2024], [1, 12, 2], [1, 31, 3]]
    """
    shifted = days + _EPOCH_SHIFT
    era = shifted // _DAYS_400_YEARS
    of_era = shifted - era * _DAYS_400_YEARS
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * month_from_march + 2) // 5 + 1
    month = np.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)
    return year_of_era + era * 400 + (month <= 2), month, day


def days_of_civil(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Days since 1970-01-01 of valid dates (a day past the month's end runs into the next month).

    >>> int(days_of_civil(np.array([2024]), np.array([2]), np.array([3]))[0])
    19756
    """
    from_march = year - (month <= 2)
    era = from_march // 400
    year_of_era = from_march - era * 400
    of_year = (153 * np.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
    of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year
    return era * _DAYS_400_YEARS + of_era - _EPOCH_SHIFT


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
