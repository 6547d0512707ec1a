"""Writing a folder of files: complete or absent, and never over what somebody else wrote."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LISTING = ".e2llm-opt-export.json"
"""Names the files that an export wrote; what it does not name belongs to somebody else."""


def refuse_folder(folder: str | os.PathLike[str], *, force: bool) -> None:
    """Refuse a folder that must not be written, before anything is.

    Raises
    ------
    InputError
        When it exists and *force* is not given, or when it exists and no export wrote it.
    """
    name = os.fspath(folder)
    if not name or "\0" in name:
        _fail(name, "this is no folder name")
    path = Path(os.path.realpath(name))
    if not path.parent.is_dir():
        _fail(name, "no such file or directory", f"make {path.parent} first")
    if not path.exists():
        return
    if not path.is_dir():
        _fail(name, "is a file, not a folder")
    if not force:
        _fail(name, "exists", "give another folder, or --force to replace an earlier export")
    if any(path.iterdir()) and not (path / LISTING).is_file():
        _fail(name, "was not written by an export", "give another folder")


def write_folder(
    folder: str | os.PathLike[str], files: Mapping[str, str], *, force: bool = False
) -> None:
    """Write *files* into *folder*; see :meth:`e2llm_opt.export.exported.Export.write`."""
    refuse_folder(folder, force=force)
    path = Path(os.path.realpath(folder))
    try:
        # Beside it: only inside one file system is a rename a single step.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:100]}.") as made:
            new, old = Path(made, "new"), Path(made, "old")
            new.mkdir()
            _fill(new, {**files, LISTING: json.dumps(sorted(files), indent=2) + "\n"})
            if path.exists():
                _keep_others(path, new)
                path.rename(old)
            try:
                new.rename(path)
            except OSError:
                if old.exists():
                    old.rename(path)
                raise
    except OSError as error:
        _fail(os.fspath(folder), (error.strerror or str(error)).lower())


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        if text.startswith("#!"):
            path.chmod(path.stat().st_mode | (path.stat().st_mode & 0o444) >> 2)


def _keep_others(old: Path, new: Path) -> None:
    """Copy what the earlier export did not write."""
    own = _written(old / LISTING)
    for path in sorted(old.rglob("*")):
        name = path.relative_to(old).as_posix()
        if (path.is_file() or path.is_symlink()) and name not in own:
            copy = new / name
            if copy.exists():
                raise FileExistsError(None, f"{name} there was not written by an export")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy, follow_symlinks=False)


def _written(listing: Path) -> set[str]:
    try:
        names: Iterable[object] = json.loads(listing.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    own = names if isinstance(names, list) else []
    return {LISTING, *(name for name in own if isinstance(name, str))}


def _fail(name: str, wrong: str, right: str = "") -> NoReturn:
    shown = name if name and "\0" not in name else repr(name)
    raise InputError([Fault(file=shown, wrong=f"cannot be written: {wrong}", right=right)])
