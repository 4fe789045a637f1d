"""Where a table lives: URIs taken apart and written in one way."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from lakebed.errors import InvalidOption

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):(//)?")
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "abfs", "abfss": "abfss"}
_OBJECT_STORES = frozenset({"s3", "gs", "az", "abfs", "abfss"})
_SCHEMES = frozenset({"s3", "gs", "az", "abfs", "abfss", "hdfs", "memory"})


@dataclass(frozen=True, slots=True)
class Location:
    """A URI in parts. `authority` is the bucket, `container@account...` or `host:port`; `path` has no slash at either
    end, but for local files, where it is the absolute path."""

    scheme: str
    authority: str
    path: str

    @property
    def uri(self) -> str:
        """The one spelling of this place; `s3a://b/t/` and `s3://b/t` have the same.

        >>> parse_uri("s3a://lake/trips/").uri
        's3://lake/trips'
        """
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")


def parse_uri(uri: str) -> Location:
    """Take a table's URI or local path apart.

    Local paths become absolute; `%` in them is a plain character, as it is for Hadoop. Raises `InvalidOption` for a
    scheme that lakebed does not know, and for credentials inside the URI (which would end up in logs).
    """
    match = _SCHEME.match(uri)
    scheme = match.group(1).lower() if match else "file"
    if scheme == "file":
        return _local(uri[match.end() :] if match else uri, from_uri=match is not None)
    assert match is not None
    scheme = _SAME_SCHEME.get(scheme, scheme)
    if scheme not in _SCHEMES or not match.group(2):
        raise InvalidOption(
            f"no storage for URIs that begin with {match.group(0)}",
            hint="use a local path, file://, s3://, gs://, az://, abfss://, hdfs:// or memory://",
        )
    place, _, query = uri[match.end() :].partition("?")
    if scheme in _OBJECT_STORES and "=" in query:  # a key of an access that is shared, or of a whole account
        raise InvalidOption(
            f"the URI {match.group(0)}{place} goes on with a query, which may hold credentials",
            hint="take it out and give what it says as storage options or through the environment",
        )
    authority, _, path = uri[match.end() :].partition("/")
    if "@" in authority and not scheme.startswith("abfs"):
        raise InvalidOption(
            f"the {scheme}:// URI holds credentials before the @",
            hint="take them out and give them as storage options or through the environment",
        )
    if not authority and scheme != "hdfs":
        raise InvalidOption(f"the URI {uri} names no bucket", hint=f"write {scheme}://<bucket>/<path>")
    return Location(scheme, authority, path.strip("/"))


def _local(path: str, *, from_uri: bool) -> Location:
    if from_uri and not path.startswith("/"):
        host, _, path = path.partition("/")
        if host not in ("", "localhost"):
            raise InvalidOption(f"the file:// URI names the host {host}", hint="write file:///<absolute path>")
        path = f"/{path}"
    return Location("file", "", os.path.abspath(os.path.expanduser(path) if not from_uri else path))
