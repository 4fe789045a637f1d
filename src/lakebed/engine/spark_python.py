"""The choice of the Python with which Spark runs lakebed.

Spark looks for data sources such as `format("lakebed")`, and plans with them, in a Python that its JVM takes from its
own environment: PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else the `python3` of the path. In a virtual environment
that is not activated `python3` is another Python, which knows no lakebed.

A JVM that starts later gets a variable (`use_this_python_later`). In a session that exists, the source is registered by
a class that needs nothing but PySpark, so that a Python without lakebed says so in one sentence.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from lakebed.engine.spark_session import gateway, is_in_one_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON = "PYSPARK_PYTHON"
DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"
_CONFIGURED = ("spark.pyspark.python", "spark.executorEnv.PYSPARK_PYTHON")
_DEFAULT = "python3"
_SOURCE = "lakebed"
# Contexts and gateways whose Python is chosen, and sessions that have the source.
_decided: WeakSet[Any] = WeakSet()
_registered: WeakSet[Any] = WeakSet()

LACKING = "Spark's workers have no "
HOW = (
    "install lakebed for that Python on every worker, or send an environment that has it along"
    " (spark-submit --archives env.tar.gz#env with PYSPARK_PYTHON=./env/bin/python)"
)


def use_this_python_later() -> None:
    """Let a JVM that starts later in this process look for data sources with this Python, unless one is chosen. Workers
    of other machines are not concerned: they have PYSPARK_PYTHON."""
    if os.environ.get(DRIVER_PYTHON) or os.environ.get(PYTHON) or _is_default() or find_spec("pyspark") is None:
        return
    os.environ[DRIVER_PYTHON] = sys.executable


def use_this_python_now() -> None:
    """Call `use_this_python` for the session of this process, if it has one."""
    sessions: Any = sys.modules.get("pyspark.sql.session")
    spark = getattr(getattr(sessions, "SparkSession", None), "_instantiatedSession", None)
    if spark is None:
        return
    try:
        use_this_python(spark)
    except Exception:  # a session that has ended; opening a table in another one tries again
        return


def use_this_python(spark: SparkSession) -> None:
    """If no Python is set for Spark, let the session's workers in this process be this one, and register the data
    source. It is called often, and by streams with another object for the same session each time; after the first call
    it does not call the JVM."""
    if is_in_one_process(spark) and not os.environ.get(PYTHON):
        context = spark.sparkContext
        if context not in _decided and context.pythonExec == _DEFAULT:  # pyright: ignore[reportUnknownMemberType]
            configuration = context.getConf()
            if not any(configuration.get(key) for key in _CONFIGURED):
                context.pythonExec = sys.executable
        _decided.add(context)
    _register_source(spark)


def _register_source(spark: SparkSession) -> None:
    jvm = gateway(spark)
    if jvm is None or jvm in _decided or spark in _registered:
        return
    environment = jvm.java.lang.System
    if environment.getenv(DRIVER_PYTHON) or environment.getenv(PYTHON) or _is_default():
        _decided.add(jvm)
        return  # the Python that Spark looks with is chosen, or is this one
    _registered.add(spark)
    session: Any = spark
    if session._jsparkSession.sessionState().dataSourceManager().dataSourceExists(_SOURCE):
        return  # by another object for this session, or one that it is a clone of
    spark.dataSource.register(_source_class())


def _is_default() -> bool:
    """Whether the path's `python3` is this Python."""
    import shutil

    executable = shutil.which(_DEFAULT)
    return executable is not None and os.path.dirname(os.path.abspath(executable)) == os.path.dirname(sys.executable)


def _source_class() -> Any:
    from pyspark.sql.datasource import DataSource

    lacking, how, variable = LACKING, HOW, DRIVER_PYTHON

    # nested, so that it is pickled by its code and not by the name of a module that the worker may lack
    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "lakebed"

        def __new__(cls, options: Any) -> Any:
            import sys
            from importlib import import_module

            try:
                source = import_module("pyspark_lakebed").DefaultSource
            except ImportError as error:
                raise ImportError(
                    f"{lacking}{error.name or 'lakebed'}: {sys.executable} ({error}). To go on, set {variable} to a"
                    f" Python that has lakebed before the session begins, and {how}."
                ) from None
            return source(options)

    return Source
