from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.expressions.joda import print_pattern
from lakebed.expressions.joda_read import read_pattern
from lakebed.expressions.timestamp import TimestampPart, TimestampSettings
from lakebed.expressions.zones import civil_of_days, day_of_week, days_of_civil, iso_week, java_zone


def test_the_calendar_is_pythons() -> None:
    first, last = date.min.toordinal(), date.max.toordinal()
    ordinals = np.concatenate([np.arange(first, last, 97), np.arange(last - 800, last + 1)])
    days = ordinals - date(1970, 1, 1).toordinal()
    dates = [date.fromordinal(int(n)) for n in ordinals]
    year, month, day = civil_of_days(days)
    assert list(zip(year.tolist(), month.tolist(), day.tolist(), strict=True)) == [
        (d.year, d.month, d.day) for d in dates
    ]
    assert days_of_civil(year, month, day).tolist() == days.tolist()
    weeks, weekdays = iso_week(days), day_of_week(days)
    shown = list(zip(weeks[0].tolist(), weeks[1].tolist(), weekdays.tolist(), strict=True))
    assert shown == [tuple(d.isocalendar()) for d in dates]


class TestZones:
    @pytest.mark.parametrize(
        ("text", "name", "hours"),
        [
            ("UTC", None, 0), ("GMT+8:00", None, 8), ("GMT-0330", None, -3.5), ("GMT+8", None, 8), ("EST", None, -5),
            ("PST", "America/Los_Angeles", 0), ("Europe/Berlin", "Europe/Berlin", 0), ("Etc/UTC", None, 0),
        ],
    )  # fmt: skip
    def test_zones_are_found_by_javas_names(self, text: str, name: str | None, hours: float) -> None:
        zone = java_zone(text)
        assert (zone.name, zone.offset) == (name, int(hours * 3_600_000))

    @pytest.mark.parametrize("text", ["+08:00", "UTC+8", "GMT+25", "Nowhere/Land", "../etc"])
    def test_zone_names_that_java_reads_as_gmt_are_refused(self, text: str) -> None:
        with pytest.raises(InvalidOption, match="unknown time zone"):
            java_zone(text)

    @pytest.mark.parametrize("name", ["America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Europe/Berlin"])
    def test_local_time_is_zoneinfos_far_into_the_future(self, name: str) -> None:
        start = datetime(1950, 1, 1, tzinfo=ZoneInfo("UTC"))
        moments = [start + timedelta(hours=1151 * n) for n in range(1200)]
        millis = pa.array([int(m.timestamp() * 1000) for m in moments], pa.int64())
        expected = [
            int((m.astimezone(ZoneInfo(name)).utcoffset() or timedelta()).total_seconds() * 1000) for m in moments
        ]
        assert java_zone(name).offsets(millis).to_pylist() == expected

    def test_the_gap_has_no_instant_and_the_overlap_the_earlier(self) -> None:
        zone = java_zone("America/New_York")
        local = [
            datetime(2024, 3, 10, 1, 59),
            datetime(2024, 3, 10, 2, 30),
            datetime(2024, 3, 10, 3),
            datetime(2024, 11, 3, 1, 30),
            None,
        ]
        millis = pa.array(local, pa.timestamp("ms")).cast(pa.int64())
        found = zone.utc_millis(millis).cast(pa.timestamp("ms"))
        assert found.to_pylist() == [
            datetime(2024, 3, 10, 6, 59), None, datetime(2024, 3, 10, 7), datetime(2024, 11, 3, 5, 30), None
        ]  # fmt: skip


def printed(pattern: str, *moments: datetime | None) -> list[str | None]:
    local = pa.array(moments, pa.timestamp("ms")).cast(pa.int64())
    return print_pattern(pattern).arrow(local).to_pylist()


class TestPrinting:
    @pytest.mark.parametrize(
        ("pattern", "text"),
        [
            ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-02-03T04:05:06.007"),
            ("y/M/d H:m:s.S", "2024/2/3 4:5:6.0"),
            ("yy YYYY C x w D DDD", "24 2024 20 2024 5 34 034"),
            ("MMM MMMM EEE EEEE e", "Feb February Sat Saturday 6"),
            ("hh KK kk a SSSSS", "04 04 04 AM 00700"),
            ("'it''s' ''yyyy''", "it's '2024'"),
            ("Z ZZ ZZZ", "+0000 +00:00 UTC"),
            ("", ""),
        ],
    )
    def test_every_pattern_letter_prints_as_joda_does(self, pattern: str, text: str) -> None:
        moment = datetime(2024, 2, 3, 4, 5, 6, 7000)
        assert printed(pattern, moment, None) == [text, None]

    def test_noon_and_midnight_print_as_joda_does_for_each_hour_letter(self) -> None:
        moments = [datetime(2024, 1, 1, hour) for hour in (0, 12, 13, 23)]
        assert printed("h K k a", *moments) == ["12 0 24 AM", "12 0 12 PM", "1 1 13 PM", "11 11 23 PM"]

    @pytest.mark.parametrize(
        ("pattern", "letter"), [("yyyy-mm-ddThh", "T"), ("yyyy z", "z"), ("G", "G"), ("uuuu", "u")]
    )
    def test_a_letter_that_lakebed_lacks_is_named(self, pattern: str, letter: str) -> None:
        with pytest.raises(UnsupportedFeature, match=f"uses the letter '{letter}'"):
            print_pattern(pattern)


def was_read(pattern: str, *texts: str) -> list[datetime | None]:
    _, local, _ = read_pattern(pattern).arrow(pa.array(texts))
    return local.cast(pa.timestamp("ms")).to_pylist()


class TestReading:
    def test_digits_may_be_fewer_but_adjacent_numbers_take_all_they_may(self) -> None:
        assert was_read("yyyy-MM-dd", "2024-2-3", "2024-02-003") == [datetime(2024, 2, 3), None]
        assert was_read("yyyyMMdd", "2024023", "202402") == [datetime(2024, 2, 3), None]

    def test_dates_that_are_none_read_as_null(self) -> None:
        assert was_read("yyyy-MM-dd", "2024-02-29", "2023-02-29", "2024-13-01", "2024-00-01", "2024-01-00") == [
            datetime(2024, 2, 29), None, None, None, None
        ]  # fmt: skip
        assert was_read("yyyy DDD", "2024 366", "2023 366", "2024 000") == [datetime(2024, 12, 31), None, None]

    def test_texts_with_anything_before_or_after_the_date_read_as_null(self) -> None:
        assert was_read("yyyy-MM-dd", "2024-02-03\n", "2024-02-03 ", " 2024-02-03", "") == [None] * 4

    def test_names_and_halves_of_the_day_in_any_usual_case(self) -> None:
        texts = ("3 Feb 2024 12:05 am", "3 FEBRUARY 2024 12:05 PM", "3 feb 2024 1:5 pm", "3 fEb 2024 1:5 pm")
        assert was_read("d MMM yyyy h:m a", *texts) == [
            datetime(2024, 2, 3, 0, 5), datetime(2024, 2, 3, 12, 5), datetime(2024, 2, 3, 13, 5), None
        ]  # fmt: skip

    def test_zone_offsets_are_read(self) -> None:
        texts = pa.array(["2024Z", "2024z", "2024+05", "2024-0530", "2024+05:30:10", "2024+5", "2024+24"])
        matched, _, offset = read_pattern("yyyyZ").arrow(texts)
        assert matched.tolist() == [True] * 5 + [False, True]
        hour = 3_600_000
        assert offset.to_pylist() == [0, 0, 5 * hour, -5.5 * hour, 5.5 * hour + 10_000, None, None]

    def test_two_digit_years_are_within_a_century_around_now(self) -> None:
        _, local, _ = read_pattern("yy", 2024).arrow(pa.array(["43", "44", "2024", "5"]))
        years = [moment.year for moment in local.cast(pa.timestamp("ms")).to_pylist()[:3]]
        assert years == [2043, 1944, 2024]

    @pytest.mark.parametrize(
        "pattern", ["HH:mm", "yyyy ww", "yyyy-MM-dd ZZZ", "yyyy DDD MM", "yyyy-MM-dd HH hh", "yyyy a"]
    )
    def test_patterns_that_cannot_be_read_are_refused(self, pattern: str) -> None:
        with pytest.raises(UnsupportedFeature, match="is not supported"):
            read_pattern(pattern)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({}, "timestamp.type is not set"),
            ({"timestamp.type": "UNIX_TIMESTAMP"}, "output.dateformat is not set"),
            ({"timestamp.type": "DATE_STRING", "output.dateformat": "yyyy"}, "input.dateformat is not set"),
            ({"timestamp.type": "SECONDS", "output.dateformat": "yyyy"}, "timestamp.type is 'SECONDS'"),
            ({"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "WEEKS", "output.dateformat": "y"},
                "time.unit is 'WEEKS'"),
            ({"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "y", "timezone": "+1"}, "unknown time zone"),
        ],
    )  # fmt: skip
    def test_missing_and_wrong_settings_are_named(self, settings: dict[str, str], text: str) -> None:
        with pytest.raises(InvalidOption, match=text):
            TimestampSettings.of(settings)

    @pytest.mark.parametrize(
        ("kind", "column"),
        [
            ("UNIX_TIMESTAMP", pa.string()),
            ("DATE_STRING", pa.int64()),
            ("MIXED", pa.date32()),
            ("SCALAR", pa.bool_()),
            ("SCALAR", pa.binary()),
        ],
    )
    def test_a_column_of_another_kind_is_a_schema_conflict(self, kind: str, column: pa.DataType) -> None:
        settings = {"timestamp.type": kind, "output.dateformat": "yyyy", "input.dateformat": "yyyy-MM-dd"}
        part = TimestampPart("t", TimestampSettings.of(settings))
        with pytest.raises(SchemaConflict, match="partition column `t`"):
            part.sql(pa.schema([("t", column)]))
        with pytest.raises(SchemaConflict, match="partition column `t`"):
            part.arrow(pa.record_batch([pa.nulls(1, column)], ["t"]))

    def test_times_out_of_all_reason_have_no_path(self) -> None:
        part = TimestampPart(
            "t", TimestampSettings.of({"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy"})
        )
        rows = pa.record_batch({"t": [2**62, -(2**62), 10**13, 10**15, None]})
        assert part.arrow(rows).to_pylist() == [None, None, "318857", None, "1970"]
