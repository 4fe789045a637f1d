"""Schemas by their ids from a registry over HTTP, each asked for once."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from lakebed.errors import InvalidOption, SourceError

_SECONDS = 10.0
_SERVER_ERRORS = 500
_TOO_MANY = 429
_NOT_FOUND = 404


class SchemaRegistry:
    """A registry by its URL, which may have a user and a password. `options` are "user" and "password", or "token"."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidOption(f"[source] registry is {url!r}", hint="give the URL of a registry, http://host:port")
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self._url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        settings = dict(options or {})
        user, password = settings.get("user", parts.username), settings.get("password", parts.password)
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if "token" in settings:
            self._headers["Authorization"] = f"Bearer {settings['token']}"
        elif user is not None:
            plain = f"{unquote(str(user))}:{unquote(str(password or ''))}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(plain).decode()}"
        self._schemas: dict[int, str] = {}

    def schema(self, identifier: int) -> str:
        """The Avro schema of an id, as JSON text.

        Raises `KeyError` for an id that the registry does not have, `SourceError` where it does not answer or the
        schema is no Avro."""
        if identifier not in self._schemas:
            self._schemas[identifier] = self._fetched(identifier)
        return self._schemas[identifier]

    def _fetched(self, identifier: int) -> str:
        address = f"{self._url}/schemas/ids/{quote(str(identifier))}"
        try:
            with urlopen(Request(address, headers=self._headers), timeout=_SECONDS) as answer:
                found: Any = json.load(answer)
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                raise KeyError(identifier) from error
            passes = error.code >= _SERVER_ERRORS or error.code == _TOO_MANY
            raise self._failure(f"answers {error.code} {error.reason}", identifier, passes=passes) from error
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise self._failure(f"does not answer: {reason}", identifier, passes=True) from error
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise self._failure("answers without a schema", identifier, passes=False)
        if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
            kind = "refers to others" if found.get("references") else f"is {found['schemaType']}"
            raise self._failure(f"has a schema that {kind}", identifier, passes=False)
        return found["schema"]

    def _failure(self, what: str, identifier: int, *, passes: bool) -> SourceError:
        return SourceError(
            f"the schema registry {self._url} {what} (schema {identifier})",
            hint="nothing was committed; the job goes on when it answers" if passes else "see the registry",
            context={"registry": self._url, "schema_id": identifier, "retryable": passes},
        )
