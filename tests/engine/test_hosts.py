"""What a machine does not allow is done without, and said; no engine is needed for that."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine import core_share as core_shares
from tests.engine import stop_and_go
from tests.engine.core_share import core_share
from tests.engine.hosts import measured_link, two_hosts
from tests.engine.workers import on_core

BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def test_without_namespaces_both_hosts_are_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with two_hosts(100.0, 1.0) as found:
        assert found.first == found.second
        assert not found.is_shaped
        assert found.words == "loopback (there is no ip (package iproute2))"
        bandwidth, latency = measured_link(found)
    assert bandwidth > 0
    assert 0 < latency < 1


@pytest.mark.engine
def test_a_link_is_as_slow_as_asked_where_the_machine_allows_it() -> None:
    with two_hosts(100.0, 2.0) as found:
        bandwidth, latency = measured_link(found)
    if not found.is_shaped:
        pytest.skip(found.words)
    assert bandwidth == pytest.approx(100e6 / 8, rel=0.2)
    assert not found.has_latency or latency == pytest.approx(2e-3, rel=0.5)


@pytest.mark.engine
@pytest.mark.parametrize("has_groups", [True, False])
def test_a_program_has_its_share_of_a_core(
    monkeypatch: pytest.MonkeyPatch, has_groups: bool
) -> None:
    if not has_groups:
        monkeypatch.setattr(core_shares, "_made", lambda _: None)
    began = time.monotonic()
    with core_share(0.25) as share:
        command = (*share.outside, *share.inside, *on_core(0), sys.executable, "-c", BUSY)
        subprocess.run(command, check=True)
    assert time.monotonic() - began > 2 * 0.3  # a machine that does other work makes it longer


def test_a_stopped_program_ends_with_what_stops_it(tmp_path: Path) -> None:
    waiting = f"import pathlib, os, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text("
    waiting += "str(os.getpid())); time.sleep(60)"
    script = stop_and_go.PATH
    with subprocess.Popen((sys.executable, script, "0.5", sys.executable, "-c", waiting)) as run:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert run.poll() is None
            time.sleep(0.02)
        run.terminate()
    assert run.returncode == 128 + signal.SIGTERM
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
