"""The detection of secrets, and texts without them: options by their names, and URLs with a user's password.

Whatever is printed, logged, raised or stored for every reader of a table goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

HIDDEN = "***"
_WORDS = (
    r"passw|passphrase|secret|token|credential|signature|jaas|(?<![a-z])sas(?!l)|user\.info|connection[._-]?string"
    r"|authorization|custom[._-]?headers|(access|account|private|api|encryption|shared)[._-]?key|key[._-]?pem"
)
_NAME = re.compile(_WORDS, re.IGNORECASE)
_STORAGE_NAME = re.compile(f"{_WORDS}|key", re.IGNORECASE)
# A container before the @ of an abfss:// URI is no user. A password may hold an @, and also a slash where no port is.
_USER = re.compile(
    r"(?<![\w+.-])(?!abfss?:|wasbs?:)([A-Za-z][\w+.-]*(?::[A-Za-z][\w+.-]*)*://)"
    r"(?:[^/\s'\",:@\[]*:(?!\d+/)[^\s'\",]+|[^/\s'\",]+)@"
)
# `name=value` of URLs and connection texts, and `"name": value` of mappings that are shown.
_PARAMETER = re.compile(
    rf"((?:{_WORDS}|pwd|sig)(?:ord|d)?s?(?:\s*=|[\"']\s*[=:])\s*|\bauthorization\s*:\s*(?:basic\s+|bearer\s+)?)"
    r"(\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'|\{[^}]*\}|[^&;,\s\"']+)",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether an option of this name holds a secret.

    >>> [is_secret_name(name) for name in ("hoodie.aws.secret.key", "sasl.password", "basic.auth.user.info", "key")]
    [True, True, True, False]
    """
    return _NAME.search(name) is not None


def is_secret_of_storage(name: str) -> bool:
    """Whether an option of storage holds a secret, by its name. Every key of storage is a secret."""
    return _STORAGE_NAME.search(name) is not None


def without_users(text: str, instead: str = "") -> str:
    """A text without users and passwords before the hosts of URLs."""
    return _USER.sub(lambda match: match[1] + instead, text)


def masked_text(text: str) -> str:
    """A text in which the secrets of URLs and parameters are replaced by `***`.

    >>> masked_text("hive://user:pw@host:9083/db/t"), masked_text("jdbc:postgresql://host/db?password=pw&ssl=true")
    ('hive://***@host:9083/db/t', 'jdbc:postgresql://host/db?password=***&ssl=true')
    """
    return _PARAMETER.sub(lambda match: match[1] + HIDDEN, without_users(text, f"{HIDDEN}@"))


def masked(value: Any, name: str = "") -> Any:
    """The value of an option, for output, in which secrets at every level are replaced by `***`.

    >>> masked({"uri": "s3://b", "storage_options": {"aws_secret_access_key": "pw"}})
    {'uri': 's3://b', 'storage_options': {'aws_secret_access_key': '***'}}
    """
    if isinstance(value, Mapping):
        return {key: masked(part, str(key)) for key, part in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        parts = [masked(part, name) for part in cast("list[Any] | tuple[Any, ...]", value)]
        return parts if isinstance(value, list) else tuple(parts)
    if value and is_secret_name(name) and not isinstance(value, bool):
        return HIDDEN
    return masked_text(value) if isinstance(value, str) else value


def masked_repr(self: Any) -> str:
    """The `repr` of a dataclass with settings."""
    texts = (f"{f.name}={masked(getattr(self, f.name), f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__name__}({', '.join(texts)})"
