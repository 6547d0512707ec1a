"""``iperf3 -J``: goodput that was received, and the round trips of its streams."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from e2llm_opt.importers.found import Found, FoundLink, usable_name
from e2llm_opt.importers.parts import json_part
from e2llm_opt.units import MBIT_PER_S, MS, US

if TYPE_CHECKING:
    from e2llm_opt.importers.parts import Part


def read(text: str, where: str) -> Found:
    """Return the link between client and server, with the directions that were measured.

    Either side's file will do; with ``--bidir`` one file has both directions.

    Raises
    ------
    InputError
        With file and line, when it is not the output of ``iperf3 -J``, or the test failed.
    """
    root = json_part(text, where)
    start = root.at("start")
    end = root.at("end")
    error = root.at("error").text()
    if error:
        raise root.at("error").fault(f"the test failed: {error}", "run it again")
    if not start.entries() or not end.entries():
        raise root.fault("not the output of iperf3: no start and end", "run iperf3 -c HOST -J")
    is_client = "connecting_to" in start.value
    local, remote = _ends(start, is_client=is_client)
    sent, back = _rates(start, end, is_client=is_client)
    num_streams = start.at("test_start", "num_streams").number() or 1
    notes = {"bandwidth_mbit_s": _how(start, num_streams)}
    latency = _latency_ms(end)
    if latency is not None:
        notes["latency_ms"] = "half the mean round trip of the stream, under load; ping is finer"
    link = FoundLink(
        ends=(local, remote) if is_client else (remote, local),
        where=where,
        forward_mbit_s=sent,
        backward_mbit_s=back,
        latency_ms=latency,
        notes=notes,
    )
    if sent is None and back is None:
        raise end.fault("nothing was received", "let the test run to its end")
    several = (f"{where}: {num_streams:g} streams together; a plan's hop is one stream: use -P 1",)
    names = _names(start)
    return Found(links=(link,), notes=several if num_streams > 1 else (), names=names)


def _ends(start: Part, *, is_client: bool) -> tuple[str, str]:
    """Return this end and the other one, as the file names them."""
    connected = start.at("connected").items()
    if not connected:
        raise start.fault("no connection was made", "run iperf3 -c HOST -J")
    local = usable_name(connected[0].at("local_host").text())
    remote = usable_name(connected[0].at("remote_host").text())
    if is_client:
        remote = usable_name(start.at("connecting_to", "host").text()) or remote
    if not local or not remote:
        raise connected[0].fault("does not say who was connected", "run iperf3 -c HOST -J")
    return local, remote


def _names(start: Part) -> dict[str, str]:
    """Return what addresses are called: this machine's own name stands in ``system_info``."""
    connected = start.at("connected", 0)
    names: dict[str, str] = {}
    called = re.match(r"^\S+ (\S+) ", start.at("system_info").text())
    if called:
        names[usable_name(connected.at("local_host").text())] = usable_name(called[1])
    host = usable_name(start.at("connecting_to", "host").text())
    address = usable_name(connected.at("remote_host").text())
    if host and address and host != address:
        names[address] = host
    return names


def _rates(start: Part, end: Part, *, is_client: bool) -> tuple[float | None, float | None]:
    """Return what the server received from the client, and the client from it [Mbit/s]."""
    test = start.at("test_start")
    first = _mbit(end, "")
    is_reverse = bool(test.at("reverse").number())
    is_bidir = bool(test.at("bidir").number()) or "sum_received_bidir_reverse" in end.value
    if not is_bidir:
        return (None, first) if is_reverse else (first, None)
    other = _mbit(end, "_bidir_reverse")
    del is_client  # both sides count from the client
    return first, other


def _mbit(end: Part, which: str) -> float | None:
    for key in (f"sum_received{which}", f"sum{which}"):  # UDP has no sum_received before 3.8
        rate = end.at(key, "bits_per_second").number()
        if rate:
            lost = end.at(key, "lost_percent").number() or 0.0
            kept = rate if key.startswith("sum_received") else rate * (1 - min(lost, 100) / 100)
            return float(f"{kept / 8 / MBIT_PER_S:.4g}")
    return None


def _latency_ms(end: Part) -> float | None:
    """Return half the mean of the streams' round trips; the sender's kernel counts in µs."""
    found = [
        stream.at("sender", "mean_rtt").number() or 0.0
        for stream in end.at("streams").items()
        if "sender" in stream.entries()
    ]
    known = [rtt for rtt in found if rtt > 0]
    return float(f"{sum(known) / len(known) / 2 * US / MS:.4g}") if known else None


def _how(start: Part, num_streams: float) -> str:
    protocol = start.at("test_start", "protocol").text() or "TCP"
    streams = "one stream" if num_streams <= 1 else f"{num_streams:g} streams together"
    return f"received, {protocol}, {streams}"
