"""``ping``: latency between two hosts, as Linux, macOS, BusyBox and Windows print it."""

from __future__ import annotations

import re

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.importers.found import Found, FoundLink, host_of, usable_name

_NUMBER = r"\d+(?:\.\d+)?"
_TITLE = re.compile(
    r"^(?:PING6?|Pinging) (?P<host>[^\s(\[]+)(?: ?[(\[](?P<address>[0-9a-fA-F.:%\w]+)[)\]])?"
)
_TIMES = re.compile(
    r"^(?:rtt|round-trip) min/avg/max(?P<spread>/(?:mdev|stddev))? = "
    rf"(?P<min>{_NUMBER})/(?P<avg>{_NUMBER})/(?P<max>{_NUMBER})(?:/(?P<dev>{_NUMBER}))? ms"
)
_WINDOWS = re.compile(
    r"^\s*Minimum = (?P<min>\d+)ms, Maximum = (?P<max>\d+)ms, Average = (?P<avg>\d+)ms"
)
_LOSS = re.compile(rf"(?P<loss>{_NUMBER})% (?:packet )?loss")


def read(text: str, where: str, host: str = "") -> Found:
    """Return a link a ping in the file; it starts at *host*, called as the file.

    Half the mean round trip is the latency of one way.

    Raises
    ------
    InputError
        With file and line, when it is not the output of ping, or nothing answered.
    """
    here = usable_name(host) or host_of(where)
    links: list[FoundLink] = []
    names: dict[str, str] = {}
    title: re.Match[str] | None = None
    line_of_title, loss = 0, 0.0
    for i, line in enumerate(text.splitlines(), start=1):
        if found := _TITLE.match(line):
            if title is not None:
                raise _fault(where, line_of_title, f"{title['host']} did not answer")
            title, line_of_title, loss = found, i, 0.0
        elif found := _LOSS.search(line):
            loss = float(found["loss"])
        elif found := _TIMES.match(line) or _WINDOWS.match(line):
            if title is None:
                raise _fault(where, i, "times without the line above them that says of whom")
            links.append(_link(here, title, found, loss, f"{where}:{i}"))
            if title["address"]:
                names[title["address"]] = usable_name(title["host"])
            title = None
    if title is not None:
        raise _fault(where, line_of_title, f"{title['host']} did not answer, or the end is missing")
    if not links:
        raise _fault(where, 1 if text.strip() else 0, "not the output of ping")
    return Found(links=tuple(links), names=names)


def _link(
    here: str, title: re.Match[str], times: re.Match[str], loss: float, where: str
) -> FoundLink:
    shortest, mean, longest = (float(times[key]) for key in ("min", "avg", "max"))
    note = f"half the mean round trip; {shortest:g} to {longest:g} ms"
    if loss:
        note += f", {loss:g} % lost"
    return FoundLink(
        ends=(here, usable_name(title["host"])),
        where=where,
        latency_ms=round(mean / 2, 4),
        notes={"latency_ms": note},
    )


def _fault(where: str, line: int, wrong: str) -> InputError:
    right = "save all that ping -c 20 HOST prints"
    return InputError([Fault(file=where, line=line, wrong=wrong, right=right)])
