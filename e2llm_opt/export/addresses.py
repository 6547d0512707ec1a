"""Where a process listens: hosts that are surely hosts, and a free port for each."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9-]{1,63})*"
)
_LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host, and a port where one was given (else 0)."""

    host: str
    port: int = 0


def parsed(text: str) -> Address | None:
    """Return ``HOST``, ``HOST:PORT``, ``IPv6`` or ``[IPv6]:PORT``; None where it is no address.

    Examples
    --------
    >>> parsed("10.0.0.2:8080")
    Address(host='10.0.0.2', port=8080)
    >>> parsed("tower; reboot") is None
    True
    """
    bracketed = re.fullmatch(r"\[([^]]+)\](?::(\d{1,5}))?", text, re.ASCII)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    elif is_numeric(text):
        host, port = text, None
    else:
        host, _, digits = text.partition(":")
        port = digits or None
        if text.endswith(":") or not re.fullmatch(r"\d{1,5}", port or "1", re.ASCII):
            return None
    if not (is_host(host) and 0 < int(port or 1) <= _LARGEST_PORT):
        return None
    return Address(host=host, port=int(port or 0))


def is_host(text: str) -> bool:
    """Whether *text* is a host name or an IP address, and nothing else."""
    return is_numeric(text) or _HOST.fullmatch(text) is not None


def is_numeric(text: str) -> bool:
    """Whether *text* is an IP address."""
    try:
        return not getattr(ipaddress.ip_address(text), "scope_id", None)
    except ValueError:
        return False


def is_ipv6(text: str) -> bool:
    """Whether *text* is an IPv6 address."""
    return ":" in text


def in_url(host: str) -> str:
    """Return *host* as it stands in a URL."""
    return f"[{host}]" if is_ipv6(host) else host


@dataclass(slots=True)
class Ports:
    """Hands out ports, none of them twice on one host."""

    _taken: set[tuple[str, int]] = field(default_factory=set)

    def take(self, host: str, first: int) -> int:
        """Return *first*, or the next port above it that is free on *host*."""
        port = first
        while (host, port) in self._taken:
            port += 1
        self._taken.add((host, port))
        return port
