"""Reads tables by engines that are Python packages, in their environment: `python reader_script.py FILE`.

The file is JSON: `reads` are the reader's name, the table's URI and the file for its rows; `s3` is the endpoint of
`s3://` URIs. A reader that fails ends the process with its name and message.
"""

from __future__ import annotations

import functools
import glob
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather


def newest_metadata(uri: str) -> str:
    """The metadata file of the published Iceberg list."""
    return f"{uri}/metadata/v{(Path(uri) / 'metadata' / 'version-hint.text').read_text()}.metadata.json"


def hudi_rs(uri: str) -> pa.Table:
    import hudi

    return pa.Table.from_batches(hudi.HudiTableBuilder.from_base_uri(uri).build().read())


def daft_hudi(uri: str) -> pa.Table:
    import daft

    return daft.read_hudi(uri).to_arrow()


def daft_delta(uri: str) -> pa.Table:
    import daft

    return daft.read_deltalake(uri).to_arrow()


def daft_iceberg(uri: str) -> pa.Table:
    import daft
    from pyiceberg.table import StaticTable

    return daft.read_iceberg(StaticTable.from_metadata(newest_metadata(uri))).to_arrow()


@functools.cache
def duckdb_with_extensions() -> Any:
    import duckdb

    connection = duckdb.connect()
    for name in ("avro", "iceberg", "delta"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        files = f"{os.path.dirname(str(package.__file__))}/**/*.duckdb_extension"
        connection.execute(f"LOAD '{glob.glob(files, recursive=True)[0]}'")
    return connection


def duckdb_delta(uri: str) -> pa.Table:
    return duckdb_with_extensions().execute(f"SELECT * FROM delta_scan('{uri}')").to_arrow_table()


def duckdb_iceberg(uri: str) -> pa.Table:
    return duckdb_with_extensions().execute(f"SELECT * FROM iceberg_scan('{newest_metadata(uri)}')").to_arrow_table()


def datafusion_hudi(uri: str) -> pa.Table:
    import datafusion
    import hudi

    context = datafusion.SessionContext()
    context.register_table("rows", hudi.HudiDataFusionDataSource(uri))
    return context.sql("SELECT * FROM rows").to_arrow_table()


def polars_delta(uri: str) -> pa.Table:
    import polars

    return polars.scan_delta(uri).collect().to_arrow()


def polars_iceberg(uri: str) -> pa.Table:
    import polars

    return polars.scan_iceberg(newest_metadata(uri)).collect().to_arrow()


def chdb_of(function: str) -> Callable[[str], pa.Table]:
    """A table function of ClickHouse, which reads object stores."""

    def read(uri: str) -> pa.Table:
        import chdb

        address = uri.replace("s3://", f"{S3['endpoint']}/")
        source = f"{function}('{address}/', '{S3['access_key']}', '{S3['secret_key']}')"
        return pa.table(chdb.query(f"SELECT * FROM {source}", "ArrowTable"))

    return read


def chdb_local_iceberg(uri: str) -> pa.Table:
    import chdb

    os.chdir(os.path.dirname(uri))  # ClickHouse reads what is below the working directory
    return pa.table(chdb.query(f"SELECT * FROM icebergLocal('{os.path.basename(uri)}')", "ArrowTable"))


S3: dict[str, str] = {}
READERS: dict[str, Callable[[str], pa.Table]] = {
    "hudi-rs": hudi_rs,
    "daft hudi": daft_hudi,
    "daft delta": daft_delta,
    "daft iceberg": daft_iceberg,
    "datafusion hudi": datafusion_hudi,
    "duckdb delta": duckdb_delta,
    "duckdb iceberg": duckdb_iceberg,
    "polars delta": polars_delta,
    "polars iceberg": polars_iceberg,
    "chdb hudi": chdb_of("hudi"),
    "chdb delta": chdb_of("deltaLake"),
    "chdb iceberg": chdb_of("icebergS3"),
    "chdb local iceberg": chdb_local_iceberg,
}


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    S3.update(given["s3"] or {})
    for name, uri, target in given["reads"]:
        try:
            rows = READERS[name](uri)
        except BaseException as error:  # panics of Rust, too
            sys.exit(f"{name} of {uri}: {type(error).__name__}: {error}")
        pyarrow.feather.write_feather(rows, target)
