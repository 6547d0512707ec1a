"""Paths between any two devices as numbers, kept by port: by a place in the network, not a pair.

Hosts with equal links to the same switches are at one port, and devices with the same number on
equal hosts. So a thousand machines on twenty switches are twenty ports and not a million pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from e2llm_opt.inventory.network import BUS_LATENCY_S, Path, pareto, private_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.inventory.network import Network
    from e2llm_opt.problem import Problem

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_AWAY, _LOCAL = 0, 1


class Ways:
    """What a hop between two devices costs, over each path that may be the best.

    Parameters
    ----------
    problem
        Devices, links, and the engine's fixed cost of a hop.
    network
        That of its inventory.
    first_devices
        Of each unit [R]: its way is theirs; by default every device is one.

    Attributes
    ----------
    port
        Of each unit [R].
    host
        Of each unit, as a number [R].
    latency, inverse_bandwidth
        Of every path [2, C, C, P] [s], [s/byte]: between two ports on different hosts, and on one
        host; paths that are missing are infinitely slow.
    """

    def __init__(
        self, problem: Problem, network: Network, first_devices: Sequence[int] | None = None
    ) -> None:
        self._inventory, self._network = problem.inventory, network
        self._private = private_links(problem.inventory)
        self._fixed = problem.runtime.hop_overhead_s, problem.runtime.bus_hop_overhead_s
        number = {host: i for i, host in enumerate(problem.inventory.hosts)}
        self.host: Ints = np.array([number[device.host] for device in problem.devices])
        self._first = list(range(len(self.host)))
        self.port, first = self._ports()
        names = [problem.devices[d].host for d in first]
        hosts = list(dict.fromkeys(names))
        place = [hosts.index(name) for name in names]
        latency, inverse = (one[np.ix_(place, place)] for one in network.ways(hosts))
        ways = self._with_local((latency, inverse), first)
        self.latency, self.inverse_bandwidth = map(_frozen, ways)
        if first_devices is not None:
            self._first = list(first_devices)
            self.host, self.port = self.host[self._first], self.port[self._first]

    def of(self, source: Ints, target: Ints) -> tuple[Floats, Floats, Floats]:
        """Return latency and inverse bandwidth [..., P], and the fixed cost [...], of each pair.

        *source* and *target* are rows of devices that broadcast to [...].
        """
        is_local = self.host[source] == self.host[target]
        place = is_local.astype(np.int64), self.port[source], self.port[target]
        fixed = np.where(is_local, self._fixed[_LOCAL], self._fixed[_AWAY])
        return self.latency[place], self.inverse_bandwidth[place], fixed

    def hop(self, num_bytes: float, source: Ints, target: Ints) -> Floats:
        """Return the time of *num_bytes* over the path that is best for them [...] [s].

        Nothing takes no time, where there is a path.
        """
        latency, inverse, fixed = self.of(source, target)
        found: Floats = (latency + num_bytes * inverse).min(axis=-1) + fixed
        if num_bytes == 0:
            found = np.where(np.isfinite(found), 0.0, np.inf)
        return np.where(np.equal(source, target), 0.0, found)

    def is_linked(self, device: int) -> bool:
        """Whether a path leads from *device* to another one."""
        others = np.flatnonzero(np.arange(len(self.port)) != device)
        return bool(np.isfinite(self.hop(1.0, np.array(device), others)).any())

    def paths(self, source: int, target: int) -> tuple[Path, ...]:
        """Return the paths from device to device, the widest first; empty where there is none."""
        ends = self._first[source], self._first[target]
        one, other = (self._inventory.devices[d] for d in ends)
        if one.host != other.host:
            return self._network.paths(one.host, other.host)
        slower = min(one.host_bus_bytes_per_s, other.host_bus_bytes_per_s)
        bus = Path(
            latency_s=BUS_LATENCY_S,
            bandwidth_bytes_per_s=slower,
            name="bus",
            resources=(("bus", one.host, ""),),
        )
        return pareto([bus, *self._private.get((one.name, other.name), ())])

    def _ports(self) -> tuple[Ints, list[int]]:
        """Return the port of each device [D], and the first device of each port."""
        devices = self._inventory.devices
        on_host: dict[str, list[int]] = {}
        for d, device in enumerate(devices):
            on_host.setdefault(device.host, []).append(d)
        keys: list[Any] = [None] * len(devices)
        for host, rows in on_host.items():
            place = self._network.place(host)
            inside = tuple(self._inside(rows)) if len(rows) > 1 else ()
            for i, d in enumerate(rows):
                keys[d] = (place, inside, i)
        number = {key: c for c, key in enumerate(dict.fromkeys(keys))}
        ports = np.array([number[key] for key in keys], dtype=np.int64)
        _, first = np.unique(ports, return_index=True)
        return ports, first.tolist()

    def _inside(self, rows: list[int]) -> Iterator[tuple[float, ...]]:
        """Yield what tells one host's devices from another's: buses and private links."""
        devices = self._inventory.devices
        for i, d in enumerate(rows):
            yield (devices[d].host_bus_bytes_per_s,)
            for j, e in enumerate(rows):
                for path in self._private.get((devices[d].name, devices[e].name), ()):
                    yield i, j, path.latency_s, path.bandwidth_bytes_per_s

    def _with_local(self, away: tuple[Floats, Floats], first: list[int]) -> tuple[Floats, Floats]:
        """Put the paths inside hosts beside those between hosts [2, C, C, P]."""
        rows: dict[int, list[int]] = {}
        for d in range(len(self.host)):
            rows.setdefault(int(self.host[d]), []).append(d)
        found = {
            (int(self.port[d]), int(self.port[e])): self.paths(d, e)
            for host in dict.fromkeys(self.host[first].tolist())
            for d in rows[host]
            for e in rows[host]
            if d != e
        }
        size, most = len(first), max((len(paths) for paths in found.values()), default=0)
        most = max(most, away[0].shape[2])
        latency, inverse = np.full((2, size, size, most), np.inf), np.zeros((2, size, size, most))
        latency[_AWAY, :, :, : away[0].shape[2]] = away[0]
        inverse[_AWAY, :, :, : away[1].shape[2]] = away[1]
        for pair, paths in found.items():
            for p, path in enumerate(paths):
                latency[_LOCAL, *pair, p] = path.latency_s
                inverse[_LOCAL, *pair, p] = 1.0 / path.bandwidth_bytes_per_s
        return latency, inverse


def _frozen(array: Floats) -> Floats:
    array.flags.writeable = False
    return array
