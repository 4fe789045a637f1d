"""Tables as a destination of dlt pipelines: `from lakebed.dlt_destination import Lakebed`."""

from lakebed.errors import UnsupportedFeature

try:
    from lakebed.dlt_destination.destination import Lakebed
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "dlt":
        raise
    raise UnsupportedFeature("dlt is not installed", hint="pip install 'lakebed[dlt]'") from error

__all__ = ["Lakebed"]
