"""Names made fit for folders, hosts, labels and comments; each stays unlike the others."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LONGEST = 50
"""Of a folder or label; Kubernetes allows 63, and a number may follow [characters]."""


def folder_name(name: str) -> str:
    """Return *name* as a folder: ASCII letters, digits, dots, dashes and underscores.

    Examples
    --------
    >>> folder_name("pi 1; rm -rf /"), folder_name("../x")
    ('pi-1-rm-rf', 'x')
    """
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", _ascii(name)).strip("-._")
    return kept[:_LONGEST].strip("-._") or "device"


def label(name: str) -> str:
    """Return *name* as a DNS label that begins with a letter (RFC 1035), as Services want it.

    Examples
    --------
    >>> label("M2 Max (büro)")
    'm2-max-buro'
    """
    kept = re.sub(r"[^a-z0-9]+", "-", _ascii(name).lower()).strip("-")
    kept = f"x{kept}" if kept[:1].isdigit() else kept
    return kept[:_LONGEST].strip("-") or "x"


def unlike(
    names: Iterable[str], made: Callable[[str], str], taken: Iterable[str] = ()
) -> list[str]:
    """Return what *made* makes of each name, with a number where two would be the same.

    Parameters
    ----------
    names
        In an order that decides who keeps the plain form.
    made
        :func:`folder_name` or :func:`label`.
    taken
        Forms that may not be used.
    """
    used = {form.lower() for form in taken}  # folders of some systems do not know case
    found = []
    for name in names:
        plain = form = made(name)
        number = 2
        while form.lower() in used:
            form = f"{plain}-{number}"
            number += 1
        used.add(form.lower())
        found.append(form)
    return found


def one_line(text: str) -> str:
    r"""Return *text* fit for a comment: no line end and no other control character.

    Examples
    --------
    >>> one_line("tower\nrm -rf /")
    'tower rm -rf /'
    """
    if text.isprintable():
        return text
    return "".join(" " if _is_control(character) else character for character in text)


def code(text: str) -> str:
    """Return *text* as Markdown code, whatever it holds."""
    line = one_line(text)
    longest = max(map(len, re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}" if longest else f"`{line}`"


def unprintable(text: str) -> bool:
    """Whether no file can hold *text*: NUL characters, or halves of a UTF-16 pair."""
    return any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text)


def _ascii(name: str) -> str:
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"}
