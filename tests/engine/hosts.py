"""Two hosts with a link of known speed: network namespaces where allowed, else loopback."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PREFIX: Final = "e2llm"
"""Of the names of namespaces: ``e2llm-PID-a``."""
_LOOPBACK: Final = "127.0.0.1"
_BURST_BYTES: Final = 32_768
"""What may pass at once: a few packets, so that a chunk of a prompt sees the bandwidth."""
_PROBE_BYTES: Final = 8_000_000
_PINGS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A place to run programs: an address, in a namespace unless that is empty."""

    address: str
    namespace: str = ""

    def command(self, *arguments: str) -> tuple[str, ...]:
        """Return the command that runs *arguments* on this host."""
        inside = ("ip", "netns", "exec", self.namespace) if self.namespace else ()
        return (*inside, *arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoHosts:
    """Two hosts and what is between them.

    Parameters
    ----------
    first, second
        The hosts.
    is_shaped
        Whether the link has the bandwidth that was asked for.
    has_latency
        Whether it has the latency that was asked for.
    words
        How the link is made, and what of it the machine did not allow.
    """

    first: Host
    second: Host
    is_shaped: bool = False
    has_latency: bool = False
    words: str = "loopback"


class NotAllowedError(Exception):
    """The machine does not let us make namespaces or shape links; the message says why."""


@contextmanager
def two_hosts(bandwidth_mbit_s: float, latency_ms: float) -> Iterator[TwoHosts]:
    """Make two hosts with a link as slow as asked, or as the machine allows, and remove them."""
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(_namespaces(bandwidth_mbit_s, latency_ms))
        except NotAllowedError as reason:
            here = Host(address=_LOOPBACK)
            hosts = TwoHosts(first=here, second=here, words=f"loopback ({reason})")
        yield hosts


@contextmanager
def _namespaces(bandwidth_mbit_s: float, latency_ms: float) -> Iterator[TwoHosts]:
    _refuse()
    _remove_leftovers()
    subnet = f"10.{os.getpid() // 250 % 250}.{os.getpid() % 250}"
    names = [f"{PREFIX}-{os.getpid()}-{end}" for end in "ab"]
    hosts = [Host(namespace=name, address=f"{subnet}.{i}") for i, name in enumerate(names, start=1)]
    try:
        for name in names:
            _ip("netns", "add", name)
        ends = [("eth0", "netns", name) for name in names]
        _ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
        for host in hosts:
            _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.namespace, "link", "set", "lo", "up")
            _ip("-n", host.namespace, "link", "set", "eth0", "up")
        shaped = [_shape(host.namespace, bandwidth_mbit_s, latency_ms) for host in hosts]
        is_shaped, has_latency = (all(flags) for flags in zip(*shaped, strict=True))
        parts = [
            f"{bandwidth_mbit_s:g} Mbit/s by tc" if is_shaped else "full speed, no tc tbf here",
            f"{latency_ms:g} ms by tc" if has_latency else "no latency added, no tc netem here",
        ]
        yield TwoHosts(
            first=hosts[0],
            second=hosts[1],
            is_shaped=is_shaped,
            has_latency=has_latency,
            words=f"network namespaces: {', '.join(parts)}",
        )
    finally:
        for name in names:  # the link goes with them
            subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)


def _refuse() -> None:
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise NotAllowedError(f"there is no {tool} (package iproute2)")


def _shape(namespace: str, bandwidth_mbit_s: float, latency_ms: float) -> tuple[bool, bool]:
    """Shape what leaves *namespace*; return whether bandwidth and latency are as asked."""
    tc = ("tc", "-n", namespace, "qdisc", "add", "dev", "eth0")
    netem = ("netem", "delay", f"{latency_ms}ms")
    rate = ("rate", f"{bandwidth_mbit_s}mbit")
    if _does((*tc, "root", *netem, *rate, "limit", "10000")):
        return True, True
    bucket = ("burst", str(_BURST_BYTES), "latency", "100ms")
    return _does((*tc, "root", "tbf", *rate, *bucket)), False


def _does(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _ip(*arguments: str) -> None:
    done = subprocess.run(("ip", *arguments), check=False, capture_output=True, text=True)
    if done.returncode:
        raise NotAllowedError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def namespaces() -> list[str]:
    """Return the namespaces of this and of other runs."""
    done = subprocess.run(("ip", "netns"), check=False, capture_output=True, text=True)
    return re.findall(rf"^({PREFIX}-\d+-\w)\b", done.stdout, re.MULTILINE)


def _remove_leftovers() -> None:
    """Remove the namespaces of runs that were killed before they could."""
    for name in namespaces():
        if not Path("/proc", name.split("-")[1]).exists():
            subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def measured_link(hosts: TwoHosts) -> tuple[float, float]:
    """Return bandwidth [bytes/s] and one-way latency [s] between two hosts, by a TCP probe."""
    port = free_port()
    echo = (sys.executable, "-c", _ECHO, hosts.first.address, str(port))
    ask = (sys.executable, "-c", _ASK, hosts.first.address, str(port))
    with subprocess.Popen(hosts.first.command(*echo), stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()  # it listens
            done = subprocess.run(
                hosts.second.command(*ask), check=True, capture_output=True, text=True, timeout=60
            )
        finally:
            server.kill()
    bandwidth, latency = map(float, done.stdout.split())
    return bandwidth, latency


_ECHO = """
import socket, sys
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
link, _ = listening.accept()
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while wanted := link.recv(8):
    link.sendall(bytes(int(wanted)))
"""
_ASK = f"""
import socket, statistics, sys, time
link = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def seconds(num_bytes):
    began = time.perf_counter()
    link.sendall(b"%8d" % num_bytes)
    while num_bytes:
        num_bytes -= len(link.recv(min(num_bytes, 1 << 20)))
    return time.perf_counter() - began
round_s = statistics.median(seconds(1) for _ in range({_PINGS}))
bulk_s = statistics.median(seconds({_PROBE_BYTES}) for _ in range(3))
print({_PROBE_BYTES} / (bulk_s - round_s), round_s / 2)
"""
