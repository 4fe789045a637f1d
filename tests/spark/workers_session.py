"""What `test_workers` runs in a process of its own, with no PYSPARK_PYTHON. Argument: a folder."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ON_SPARK = {"lakebed.local.rows": 0}


def main(folder: Path) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        spark.read.format("lakebed").load(str(folder / "t"))
    # imported after the session has begun and has looked for data sources in vain
    import lakebed
    from lakebed.engine import spark_columns
    from lakebed.engine.spark_python import use_this_python
    from lakebed.errors import UnsupportedFeature
    from lakebed.expressions.base import Column
    from lakebed.expressions.bucket import JavaHash

    rows = spark.range(3).selectExpr("id", "'a' AS v")
    table = lakebed.create(
        str(folder / "t"),
        rows,
        key="id",
        index="bucket",
        buckets=1,
        type="mor",
        spark=spark,
        properties={"hoodie.table.cdc.enabled": True},
    )
    # the python3 of the path is no Python at all: these workers are this process's own
    assert table.upsert(rows, options=ON_SPARK).inserted == 3
    assert table.upsert(rows.limit(2), options=ON_SPARK).rows == 2
    assert sorted(row.id for row in table.scan().to_spark().collect()) == [0, 1, 2]

    assert spark.read.format("lakebed").load(str(folder / "t")).count() == 3
    spark.sql(f"CREATE TEMPORARY VIEW v USING lakebed OPTIONS (path '{folder / 't'}')")
    assert sorted(row.id for row in spark.sql("SELECT id FROM v").collect()) == [0, 1, 2]

    # a stream has another object for its session with each batch: the source is not registered again
    spark.sparkContext.setLogLevel("WARN")
    use_this_python(SparkSession(spark.sparkContext, spark._jsparkSession))
    spark.sparkContext.setLogLevel("OFF")

    bare = folder / "bare"
    bare.mkdir()
    (bare / "sitecustomize.py").write_text("import sys\nsys.modules['lakebed'] = None\n")
    spark.sparkContext.environment["PYTHONPATH"] = str(bare)
    try:
        table.upsert(rows, options=ON_SPARK)
    except UnsupportedFeature as error:
        print("write:", error)
    frame = table.scan().to_spark()
    try:
        frame.collect()
    except Exception as error:
        print("read:", next(line for line in str(error).splitlines() if "lakebed:" in line))
    # where the platform forbids Java in SQL, keys are hashed in the workers
    spark_columns._allowed[spark] = False
    try:
        rows.select(spark_columns.hash_column(spark, JavaHash(Column("v")), table.schema)).collect()
    except Exception as error:
        print("hash:", next(line for line in str(error).splitlines() if "lakebed:" in line))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]

    # a Python of its own that has lakebed and no pyarrow: PySpark imports that before it calls a function of lakebed's
    (folder / "only").mkdir()
    (folder / "only/lakebed").symlink_to(Path(lakebed.__file__).parent)
    spark.sparkContext.environment["PYTHONPATH"] = str(folder / "only")
    venv.create(folder / "python", symlinks=True)
    spark.sparkContext.pythonExec = str(folder / "python/bin/python")
    frames = {"merged": table.scan(), "changes": table.changes("000"), "cdc": table.cdc("000")}
    for name, frame in frames.items():
        try:
            frame.to_spark().collect()
        except Exception as error:
            print(f"{name}:", next(line for line in str(error).splitlines() if "pyarrow:" in line))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
