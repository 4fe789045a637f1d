"""The jars that Spark needs to open s3a:// paths, by PySpark version, and Delta Lake's and Iceberg's tables."""

from __future__ import annotations

from .service import maven_jars

# PySpark line: Hadoop inside it, and an AWS SDK that this Hadoop works with
_LINES = {
    "4.0": ("3.4.1", "2.29.52"),
    "4.1": ("3.4.2", "2.29.52"),
    "4.2": ("3.5.0", "2.35.4"),
    "4.3": ("3.5.0", "2.35.4"),
}
_SDK = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
_IN_SPARK = (
    "org.slf4j:slf4j-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-common",
    "org.xerial.snappy:snappy-java",
    "commons-logging:commons-logging",
    "commons-codec:commons-codec",
    *(
        f"io.netty:netty-{part}"
        for part in (
            "codec",
            "codec-http",
            "codec-http2",
            "common",
            "buffer",
            "handler",
            "resolver",
            "transport",
            "transport-classes-epoll",
            "transport-native-unix-common",
        )
    ),
    "software.amazon.awssdk:bundle",
)


def s3a_jars(version: str | None = None) -> list[str]:
    """Paths for `spark.jars`: Hadoop's S3A and the parts of the AWS SDK that it uses."""
    if version is None:
        import pyspark

        version = pyspark.__version__
    hadoop, sdk = _LINES[".".join(version.split(".")[:2])]
    coordinates = [f"org.apache.hadoop:hadoop-aws:{hadoop}", *(f"software.amazon.awssdk:{m}:{sdk}" for m in _SDK)]
    return maven_jars("spark-s3a", coordinates, exclude=_IN_SPARK)


def list_jars() -> list[str]:
    """Paths for `spark.jars` of PySpark 4.1: Delta Lake and Iceberg."""
    delta = maven_jars("spark-delta", ["io.delta:delta-spark_4.1_2.13:4.4.0!", "io.delta:delta-storage:4.4.0!"])
    iceberg = maven_jars("spark-iceberg", ["org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0!"])
    return [*delta, *iceberg]
