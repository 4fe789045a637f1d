"""Schemas by their ids from a registry over HTTP, each asked for once: Avro as text, Protobuf as descriptors."""

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
    """A client of the schema registry at a URL, which may include a user and a password. `options` are "user" and
    "password", or "token"."""

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
        self._answers: dict[str, Mapping[str, Any]] = {}

    def schema(self, identifier: int) -> str:
        """The Avro schema of an id, as JSON text.

        Raises `KeyError` for an id that the registry does not have, `SourceError` where it does not answer or the
        schema is no Avro."""
        answer = self._answer(f"/schemas/ids/{identifier}", identifier)
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO" or answer.get("references"):
            problem = "refers to others" if kind == "AVRO" else f"is {kind}, and format is avro"
            raise self._failure(f"has a schema that {problem}", identifier, passes=False)
        return answer["schema"]

    def descriptors(self, identifier: int) -> dict[str, bytes]:
        """The Protobuf schema of an id and those that it refers to, as serialized descriptors by the names under which
        they are imported; the schema of the id has the name "".

        Raises `KeyError` for an id that the registry does not have, `SourceError` where it does not answer or the
        schema is no Protobuf."""
        answer = self._answer(f"/schemas/ids/{identifier}?format=serialized", identifier)
        kind = answer.get("schemaType", "AVRO")
        if kind != "PROTOBUF":
            problem = f"has a schema that is {kind}, and format is protobuf"
            raise self._failure(problem, identifier, passes=False)
        files: dict[str, bytes] = {}
        pending: list[tuple[str, Mapping[str, Any]]] = [("", answer)]
        while pending:
            name, answer = pending.pop()
            try:
                files[name] = base64.b64decode(answer["schema"], validate=True)
            except ValueError as error:
                problem = "does not serve Protobuf schemas as descriptors (format=serialized)"
                raise self._failure(problem, identifier, passes=False) from error
            for reference in answer.get("references") or ():
                if reference["name"] not in files:
                    path = f"/subjects/{quote(reference['subject'], '')}/versions/{reference['version']}"
                    try:
                        part = self._answer(f"{path}?format=serialized", identifier)
                    except KeyError:
                        problem = f"lacks {reference['name']}, to which a schema refers"
                        raise self._failure(problem, identifier, passes=False) from None
                    pending.append((reference["name"], part))
        return files

    def _answer(self, path: str, identifier: int) -> Mapping[str, Any]:
        if path not in self._answers:
            self._answers[path] = self._fetched(path, identifier)
        return self._answers[path]

    def _fetched(self, path: str, identifier: int) -> Mapping[str, Any]:
        try:
            with urlopen(Request(self._url + path, headers=self._headers), timeout=_SECONDS) as answer:
                content: Any = json.load(answer)
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                raise KeyError(identifier) from error
            passes = error.code >= _SERVER_ERRORS or error.code == _TOO_MANY
            raise self._failure(f"answers {error.code} {error.reason}", identifier, passes=passes) from error
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise self._failure(f"does not answer: {reason}", identifier, passes=True) from error
        if not isinstance(content, dict) or not isinstance(content.get("schema"), str):
            raise self._failure("answers without a schema", identifier, passes=False)
        return content

    def _failure(self, problem: str, identifier: int, *, passes: bool) -> SourceError:
        return SourceError(
            f"the schema registry {self._url} {problem} (schema {identifier})",
            hint="nothing was committed; the job goes on when it answers" if passes else "see the registry",
            context={"registry": self._url, "schema_id": identifier, "retryable": passes},
        )
