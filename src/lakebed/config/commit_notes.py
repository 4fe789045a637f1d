"""What a caller notes about a write, and how views show it: entries of the extra metadata of a commit. Real Hudi keeps
them and shows them with its commits. What lakebed notes about the process is in `concurrency/heartbeat.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakebed.config.option_table import exposed, is_credential
from lakebed.errors import InvalidOption
from lakebed.model import HOST, PROGRAM, SERVICE_OPERATIONS, USER
from lakebed.secrets import masked_text

MESSAGE = "lakebed.message"
OPERATION = "lakebed.operation"
"""The operation as its caller knows it, where Hudi has no word for it: merge, update, erase."""
METADATA = "lakebed.metadata."
"""The prefix of options whose names without it go into the metadata of a commit."""
# Names that Hudi and lakebed give entries of their own.
_RESERVED = ("schema", "latest_schema")
_RESERVED_PREFIXES = ("hoodie.", "lakebed.", "_hoodie_", "deltastreamer.", "streamer.")
MAX_MESSAGE = 4096
NOTES = ("user", "host", "program", "message", "metadata")
"""The columns of views that show who wrote a commit, and what was noted with it."""
# Entries that lakebed and Hudi write themselves: they are nobody's note.
_NOT_NOTED = ("_hoodie_", "hoodie.", "lakebed.", "schema", "latest_schema")


def with_note(
    options: Mapping[str, Any],
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    operation: str = "",
) -> Mapping[str, Any]:
    """The options of a write with the note of its caller, and its operation where Hudi has no word for it.

    >>> with_note({"lakebed.write.tasks": 2}, "nightly load", {"ticket": "OPS-7"})
    {'lakebed.write.tasks': 2, 'lakebed.message': 'nightly load', 'lakebed.metadata.ticket': 'OPS-7'}
    """
    note: dict[str, Any] = {} if message is None else {MESSAGE: message}
    note |= {METADATA + name: value for name, value in (metadata or {}).items()}
    if operation:
        note[OPERATION] = operation
    return {**options, **note} if note else options


def notes_of_options(options: Mapping[str, Any], operation: str) -> tuple[str, dict[str, str]]:
    """The operation of a write with these options, which is `operation` where they name no other, and what its caller
    notes: the message, and the metadata by their names.

    >>> notes_of_options({"lakebed.message": "nightly", "lakebed.metadata.ticket": "OPS-7"}, "upsert")
    ('upsert', {'message': 'nightly', 'ticket': 'OPS-7'})
    """
    names = {name: "message" if name == MESSAGE else name.removeprefix(METADATA) for name in options}
    notes = {note: str(options[name]) for name, note in names.items() if name == MESSAGE or name.startswith(METADATA)}
    return str(options.get(OPERATION, operation)), notes


def note_entry(name: str, text: str) -> tuple[str, str]:
    """The entry of a commit's extra metadata that an option with a note is. Raises `InvalidOption` for a name that is
    taken, a secret, and a message that is too long.

    >>> note_entry("lakebed.metadata.ticket", "OPS-7")
    ('ticket', 'OPS-7')
    """
    if not name.startswith(METADATA):
        check_writable(text, "the message of the write")
        if len(text) > MAX_MESSAGE:
            raise InvalidOption(
                f"the message of the write has {len(text):,} characters, and may have {MAX_MESSAGE:,}",
                hint="every reader of the timeline reads it: shorten it",
                context={"option": name},
            )
        if masked_text(text) != text:
            raise exposed("message")
        return name, text
    key = name.removeprefix(METADATA)
    check_writable(key, "a name in metadata")
    check_writable(text, f"metadata[{key!r}]")
    if not key:
        raise InvalidOption("metadata has an entry without a name", context={"option": "metadata"})
    if key in _RESERVED or key.startswith(_RESERVED_PREFIXES):
        raise InvalidOption(
            f"{key!r} cannot be a name in metadata: Hudi and lakebed use it",
            hint=f"take a name that begins with none of {', '.join(_RESERVED_PREFIXES)}",
            context={"option": "metadata", "name": key},
        )
    if is_credential(key) or masked_text(text) != text:
        raise exposed(f"metadata[{key!r}]")
    return key, text


def check_writable(text: str, subject: str) -> None:
    """Raise `InvalidOption` for a text with half of a surrogate pair, which no file can hold; `subject` names it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidOption(
            f"{subject}, {text[:80]!a}, has no bytes in UTF-8: its character {error.start} is half of a pair",
            hint="leave that character out; texts like this come from files that were read with another encoding",
            context={"text": ascii(text[:80])},
        ) from error


def operation_of(operation: str, extra: Mapping[str, str]) -> str:
    """The operation of a commit in lower case, as its caller knows it.

    >>> operation_of("UPSERT", {"lakebed.operation": "merge"}), operation_of("UPSERT", {})
    ('merge', 'upsert')
    """
    return operation.lower() if operation in SERVICE_OPERATIONS else extra.get(OPERATION) or operation.lower()


def notes_of(extra: Mapping[str, str]) -> dict[str, str | None]:
    """The values of the columns `NOTES` for a commit with this extra metadata: texts, None where nothing is noted.
    `metadata` is a JSON object of all entries that Hudi and lakebed did not make.

    >>> notes_of({"lakebed.user": "ann", "schema": "{}", "ticket": "OPS-7"})["metadata"]
    '{"ticket": "OPS-7"}'
    """
    metadata = {name: text for name, text in sorted(extra.items()) if not name.startswith(_NOT_NOTED)}
    return {
        "user": extra.get(USER),
        "host": extra.get(HOST),
        "program": extra.get(PROGRAM),
        "message": extra.get(MESSAGE),
        "metadata": json.dumps(metadata, ensure_ascii=False) if metadata else None,
    }
