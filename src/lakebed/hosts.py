"""Which requests an HTTP server of this machine answers: those that name it. A page of another site in a browser here
can send requests under a name of its own that leads to this machine, and read the answers.
"""

from __future__ import annotations

import ipaddress
import re
import socket

LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = frozenset({"localhost", LOOPBACK, "::1"})
# An address in brackets, or a name, and a port.
_HOST = re.compile(r"(?:\[([0-9a-f:.%]+)\]|([^\s:@/\[\]]+))(?::\d{1,5})?")
REFUSED = "Invalid host header"


def is_loopback(address: str) -> bool:
    """Whether an address is that of this machine for itself, which no other machine reaches.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def names_this_machine(header: str, address: str = LOOPBACK) -> bool:
    """Whether the Host header of a request names the server that listens on this address. If other machines can reach
    the server, any IP address names it too, since no other site has an IP address as its name, and so does the name of
    the machine.

    >>> [names_this_machine(host) for host in ("localhost:9464", "rebound.example:9464")]
    [True, False]
    >>> names_this_machine("10.0.0.7:9464", "0.0.0.0")
    True
    """
    parts = _HOST.fullmatch(header.strip().lower())
    if parts is None:
        return False
    host = parts[1] or parts[2]
    if host in _LOOPBACK_NAMES or host == address.lower():
        return True
    if address in _LOOPBACK_NAMES:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host in (socket.gethostname().lower(), socket.getfqdn().lower())
    return True
