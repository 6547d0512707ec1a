"""A folder is complete or absent, and nothing that somebody else wrote is touched."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2llm_opt import Export, ExportOptions, InputError, export
from tests.export.plans import plan, replica


@pytest.fixture
def answer() -> Export:
    return export(
        plan(replica("r0", "MIXED", [("tower", 12), ("laptop", 20)]), weights="q4_k_m"), "llama.cpp"
    )


def seen(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_folder_has_the_files_and_scripts_can_be_run(answer: Export, tmp_path: Path) -> None:
    answer.write(tmp_path / "run")
    found = seen(tmp_path / "run")
    assert json.loads(found.pop(".e2llm-opt-export.json")) == sorted(answer.files)
    assert found == answer.files
    for name, text in answer.files.items():
        mode = (tmp_path / "run" / name).stat().st_mode
        assert bool(mode & stat.S_IXUSR) == text.startswith("#!"), name
        assert name.endswith((".sh", ".py")) == text.startswith("#!"), name
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_json_has_the_fixed_names(answer: Export) -> None:
    found = json.loads(answer.to_json())
    assert list(found) == ["engine", "files", "commands", "not_expressible", "warnings"]
    assert all(list(own) == ["device", "argv", "env"] for own in found["commands"])
    assert found == answer.to_dict()


def test_a_folder_that_exists_is_not_written(answer: Export, tmp_path: Path) -> None:
    for name in ("empty", "full", "file"):
        (tmp_path / name).mkdir() if name != "file" else (tmp_path / name).write_text("mine")
    (tmp_path / "full" / "mine").write_text("mine")
    before = seen(tmp_path)
    for name in ("empty", "full", "file"):
        with pytest.raises(InputError, match="cannot be written"):
            answer.write(tmp_path / name)
    for name in ("full", "file"):
        with pytest.raises(InputError, match="cannot be written"):
            answer.write(tmp_path / name, force=True)
    assert seen(tmp_path) == before
    answer.write(tmp_path / "empty", force=True)
    assert "README.md" in seen(tmp_path / "empty")


def test_force_replaces_what_an_export_wrote_and_keeps_the_rest(
    answer: Export, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    answer.write(folder)
    with pytest.raises(InputError, match="exists"):
        answer.write(folder)
    (folder / "tower" / "notes.txt").write_text("mine")
    (folder / "link").symlink_to("nowhere")
    (folder / "tower" / "start.sh").write_text("changed")
    other = export(plan(replica("r0", "MIXED", [("tower", 32)]), weights="q4_k_m"), "llama.cpp")
    other.write(folder, force=True)
    found = seen(folder)
    assert found["tower/notes.txt"] == "mine"
    assert (folder / "link").readlink() == Path("nowhere")
    assert found["tower/start.sh"] == other.files["tower/start.sh"]
    assert "laptop/start.sh" not in found, "written by the first export, not by the second"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_file_of_somebody_else_in_the_way_is_not_replaced(answer: Export, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    export(plan(replica("r0", "MIXED", [("tower", 32)]), weights="q4_k_m"), "llama.cpp").write(
        folder
    )
    (folder / "laptop").mkdir()
    (folder / "laptop" / "start.sh").write_text("mine")
    before = seen(folder)
    with pytest.raises(InputError, match=r"laptop/start\.sh"):
        answer.write(folder, force=True)
    assert seen(folder) == before


@pytest.mark.parametrize("name", ["missing/run", "", "a\0b"])
def test_impossible_folders_are_refused(answer: Export, tmp_path: Path, name: str) -> None:
    where = f"{tmp_path}/{name}" if name else ""
    with pytest.raises(InputError, match="cannot be written"):
        answer.write(where)


def test_what_fails_half_way_leaves_the_old_folder(
    answer: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    answer.write(folder)
    before = seen(folder)
    write = Path.write_text
    count = 0

    def full(path: Path, *args: Any, **kwargs: Any) -> int:
        nonlocal count
        count += 1
        if count == 4:
            raise OSError(28, "No space left on device")
        return write(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InputError, match="no space left"):
        answer.write(folder, force=True)
    with pytest.raises(InputError, match="cannot be written"):
        answer.write(tmp_path / "new" / "deep")
    monkeypatch.undo()
    assert seen(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


SLOW_TO_END = f"""#!{sys.executable}
import os, signal, socket, sys, time
def end(*_):
    time.sleep(1)
    sys.exit()
signal.signal(signal.SIGTERM, end)
open("pid", "w").write(str(os.getpid()))
listening = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("-p") + 1])))
time.sleep(60)
"""


def test_stop_comes_back_once_all_of_a_folder_have_ended(tmp_path: Path) -> None:
    """A worker that takes its time: what starts next needs its port and memory."""
    pair = plan(replica("r0", "MIXED", [("tower", 12), ("laptop", 20)]), weights="q4_k_m")
    options = ExportOptions(addresses={"laptop": "127.0.0.1"}, engine_devices={"laptop": "CPU"})
    export(pair, "llama.cpp", options=options).write(tmp_path / "run")
    folder = tmp_path / "run" / "laptop"
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "ggml-rpc-server", SLOW_TO_END)
    program(tmp_path / "bin" / "llama-server", "#!/bin/sh\n: >serves\nexec sleep 60\n")
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    with subprocess.Popen(
        ["bash", folder / "start.sh"], cwd=folder, env=env, stderr=subprocess.DEVNULL
    ) as started:
        while not (folder / "serves").exists() and started.poll() is None:
            pass
        with subprocess.Popen(["bash", folder / "stop.sh"], env=env) as stopping:
            started.wait(20)
            assert stopping.wait(20) == 0
        assert not Path("/proc", (folder / "pid").read_text()).exists()


def test_scripts_start_check_and_stop_a_process(answer: Export, tmp_path: Path) -> None:
    """A stand-in for ggml-rpc-server that waits: stop.sh ends it, and health follows."""
    answer.write(tmp_path / "run")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ggml-rpc-server"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    (tmp_path / "bin" / "getent").write_text("#!/bin/sh\necho 10.0.0.1 x\n")
    (tmp_path / "bin" / "getent").chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    folder = tmp_path / "run" / "tower"
    started = subprocess.Popen(
        ["bash", folder / "start.sh"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not (folder / "process.pid").exists() and started.poll() is None:
            pass
        assert (folder / "process.pid").read_text().strip() == str(started.pid)
        stop = ["bash", str(folder / "stop.sh")]
        with subprocess.Popen(stop, env=env, stdout=subprocess.PIPE, text=True) as stopping:
            assert started.wait(10) != 0  # here, or it would stay as a zombie
            assert stopping.communicate()[0] == "stopped\n"
        assert not (folder / "process.pid").exists()
    finally:
        started.kill()
        started.wait()
