"""What `lakebed maintenance doctor` says about a Spark session, and a table that it cannot see."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.diagnosis.findings import Severity


@pytest.mark.rest
def test_a_session_is_described_and_a_table_that_it_cannot_see_is_a_warning(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lakebed.create(str(tmp_path / "trips"), {"id": [1]}, key="id", spark=spark)
    (finding,) = table.maintenance.doctor().of_check("spark session")
    assert finding.severity is Severity.FINE
    assert finding.text.startswith(f"Spark {spark.version}: spark.master=local[")
    assert f"spark.sql.session.timeZone={spark.conf.get('spark.sql.session.timeZone')}" in finding.text
    hidden = lakebed.create("memory://doctor/hidden", {"id": [1]}, key="id", spark=spark)
    warning, fine = hidden.maintenance.doctor().of_check("spark session")
    assert (warning.severity, fine.severity) == (Severity.WARNING, Severity.FINE)
    assert "which Spark's workers cannot see" in warning.text
