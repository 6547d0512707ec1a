"""``import``, ``probe`` and ``init`` on the command line: written, merged, asked and refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from e2llm_opt import Problem
from e2llm_opt.cli import command_line
from e2llm_opt.importers import SOURCES, machine
from e2llm_opt.loading.load import load_inventory
from tests.importers.samples import NVIDIA_SMI, PING_LINUX, SAMPLES, iperf3

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.fixture
def tower(tmp_path: Path) -> str:
    path = tmp_path / "tower.csv"
    path.write_text(NVIDIA_SMI, encoding="utf-8")
    return str(path)


def test_an_import_is_an_inventory_on_standard_output(tower: str, run: Run, tmp_path: Path) -> None:
    done = run("import", "nvidia-smi", tower)
    assert (done.exit_code, done.stderr) == (0, "")
    path = tmp_path / "lab.yaml"
    path.write_text(done.stdout, encoding="utf-8")
    assert [device.name for device in load_inventory(path).devices] == ["tower-0", "tower-1"]


def test_an_import_goes_into_a_file_and_says_what_changed(lab: str, tower: str, run: Run) -> None:
    done = run("import", "nvidia-smi", tower, "--name", "tower-0=tower", "--into", lab)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "tower: memory_gib, uuid, power_w, host set" in done.stdout
    assert "tower-1: added" in done.stdout
    one, _, two = load_inventory(lab).devices
    assert (one.name, two.name, one.host == two.host) == ("tower", "tower-1", True)
    assert Problem.load(lab).model.num_layers > 1, "the rest of the file is still there"


def test_a_merge_can_be_looked_at_first(lab: str, tower: str, run: Run) -> None:
    old = Path(lab).read_text(encoding="utf-8")
    done = run("import", "nvidia-smi", tower, "--into", lab, "-o", "-", "-q")
    assert Path(lab).read_text(encoding="utf-8") == old
    assert "GPU-7c1b1c1e" in done.stdout
    assert done.stderr == ""


def test_a_file_that_is_not_there_is_made(tower: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    assert run("import", "nvidia-smi", tower, "--into", str(path)).exit_code == 0
    assert len(load_inventory(path).devices) == 2


def test_standard_input_is_read_and_the_host_is_given(lab: str) -> None:
    arguments = ["import", "ping", "-", "--host", "tower", "--name", "mini.lan=laptop"]
    done = CliRunner().invoke(command_line, [*arguments, "--into", lab], input=PING_LINUX)
    assert done.exit_code == 0
    (link,) = load_inventory(lab).links
    assert (link.latency_s, link.forward_bytes_per_s) == (0.156e-3, 940e6 / 8)


def test_a_link_can_be_one_of_several(lab: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tower.txt"
    path.write_text(PING_LINUX, encoding="utf-8")
    done = run(
        *("import", "ping", str(path), "--name", "mini.lan=laptop", "--interface", "wifi"),
        *("--into", lab, "-o", "-", "-q"),
    )
    assert yaml.safe_load(done.stdout)["links"][0]["interface"] == "wifi"


def test_all_files_that_are_wrong_are_told(tower: str, run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("iperf3: error", encoding="utf-8")
    done = run("import", "iperf3", str(bad), tower, str(tmp_path / "none"))
    assert done.exit_code == 2
    assert f"{bad}:1: not JSON" in done.stderr
    assert f"{tower}:1: not JSON" in done.stderr
    assert "none: cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("lspci", "x"), "is not one of nvidia-smi, llama-server"),
        (("kubernetes",), "Missing argument"),
        (("ping", "x", "--name", "mini"), "is not FOUND=NAME"),
        (("iperf3", "FILE", "--host", "a"), "names its machines"),
        (("iperf3", "FILE", "--name", "a=b"), "nothing is called a"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: tuple[str, ...], told: str, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text(iperf3(), encoding="utf-8")
    words = [str(path) if word == "FILE" else word for word in arguments]
    done = run("import", *words)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.split())


def test_a_broken_inventory_is_not_touched(tower: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("devices:\n\t- a\n", encoding="utf-8")
    done = run("import", "nvidia-smi", tower, "--into", str(path))
    assert (done.exit_code, f"{path}:2" in done.stderr) == (2, True)
    assert path.read_text(encoding="utf-8") == "devices:\n\t- a\n"


def test_the_help_names_every_source(run: Run) -> None:
    text = " ".join(run("import", "--help").stdout.split())
    assert all(source.name in text for source in SOURCES)
    assert set(SAMPLES) == {source.name for source in SOURCES}


def test_a_probe_is_merged_like_an_import(
    lab: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = machine.Machine(name="pi", memory_bytes=8e9, product="Raspberry Pi 5 Model B")
    monkeypatch.setattr(machine, "this_machine", lambda: known)
    assert run("probe", "--name", "shelf", "--into", lab).exit_code == 0
    assert load_inventory(lab).devices[-1].name == "shelf"
    assert yaml.safe_load(run("probe", "-q").stdout)["devices"][0]["name"] == "pi"


def test_init_by_options_is_valid_and_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "a; b $(c).yaml")
    options = ("--device", "tower=rtx-3060", "--device", "mini=apple-m4", "--rate", "0.2")
    done = run("init", *options, "--link", "tower,mini=9400,0.05", "-o", path)
    assert done.exit_code == 0
    assert f"e2llm-opt plan '{path}'" in done.stdout, "quoted for the shell"
    problem = Problem.load(path)
    assert (problem.workload.rate_per_s, len(problem.inventory.links)) == (0.2, 1)
    again = run("init", *options, "-o", path)
    assert (again.exit_code, "is there already" in again.stderr) == (2, True)
    assert run("init", *options, "-o", path, "--force").exit_code == 0
    assert run("init", *options).stdout == Path(path).read_text(encoding="utf-8").replace(
        f"'{path}'", "inventory.yaml"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "there is nobody to ask"),
        (("--device", "tower"), "is not NAME=TYPE, such as tower=rtx-3060-12gb"),
        (("--device", "tower=rtx-306"), "did you mean"),
        (("--device", "a=rtx-3090", "--link", "a=1"), "is not DEVICE,DEVICE=MBIT"),
        (("--device", "a=rtx-3090", "--link", "a,b=fast"), "is not DEVICE,DEVICE=MBIT"),
        (("--device", "a=rtx-3090", "--model", "nope"), "unknown model"),
    ],
)
def test_init_refuses_what_it_cannot_write(arguments: tuple[str, ...], told: str, run: Run) -> None:
    done = run("init", *arguments)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.split())


def test_init_asks_on_a_terminal_until_types_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from e2llm_opt.cli import init

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    class Sys:
        stdin = Terminal

    monkeypatch.setattr(init, "sys", Sys)
    path = tmp_path / "asked.yaml"
    answers = ["", "tower", "rtx-306", "rtx-3060", "pi", "rpi5", "", "500", "0.4"]
    answers += ["llama-3.1-8c", "llama-3.1-8b", "q8_0", "", "0", "0.1", "", ""]
    done = CliRunner().invoke(
        command_line, ["init", "-o", str(path)], input="".join(f"{a}\n" for a in answers)
    )
    assert done.exit_code == 0, done.output
    assert "unknown device 'rtx-306'" in done.stderr
    assert "unknown model 'llama-3.1-8c'" in done.stderr
    problem = Problem.load(path)
    assert [device.name for device in problem.devices] == ["tower", "pi"]
    assert (problem.weights, problem.workload.rate_per_s) == ("q8_0", 0.1)
    assert {link.latency_s for link in problem.inventory.links} == {0.4e-3}
    path.unlink()
    given_up = CliRunner().invoke(command_line, ["init", "-o", str(path)], input="tower\n")
    assert (given_up.exit_code, path.exists()) == (130, False)
