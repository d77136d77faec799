"""The compiled part: built once for each environment, torch and source, and kept; registered once in a process."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import sys
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

NAME = "pretend"
SOURCE = Path(__file__).with_name("pretend.cpp")

_native: Any = None


def loaded() -> Any:
    """Return the compiled part of an installed device."""
    return _native


def why_not() -> str:
    """Say what is missing to build it; "" where nothing is, or it is built."""
    if _place().exists():
        return ""
    missing = [program for program in (os.environ.get("CXX", "g++"), "ninja") if _found(program) is None]
    return f"the pretend device needs {' and '.join(missing)}, which is not here" if missing else ""


def install(*, cudnn_rules: bool = True, without_float64: bool = False) -> str:
    """Register the device in this process, once and for good; its name is ``pretend``.

    Args:
        cudnn_rules: recurrent layers in evaluation mode cannot be differentiated, as long as
            ``torch.backends.cudnn.enabled``; and weights that are no single block of memory are remarked on.
        without_float64: float64 tensors cannot be made on the device.
    """
    global _native
    import torch

    if _native is None:
        from .backend import Backend

        path = build()
        torch.utils.rename_privateuse1_backend(NAME)
        torch._register_device_module(NAME, Backend())
        loader = ExtensionFileLoader(path.stem, str(path))
        spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
        assert spec is not None
        made = importlib.util.module_from_spec(spec)
        loader.exec_module(made)
        made.start()
        torch.utils.generate_methods_for_privateuse1_backend()
        _native = made
        if cudnn_rules:
            from .recurrent import keep_cudnn_rules

            keep_cudnn_rules()
    _native.no_float64(without_float64)
    return NAME


def limit(size: int | None) -> None:
    """Let the device have so many bytes; None: as many as the machine."""
    _native.limit(-1 if size is None else size)


def build() -> Path:
    """Compile it, unless that was done; of several processes one does."""
    path = _place()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (path.parent / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            from torch.utils.cpp_extension import load

            # torch looks for ninja on PATH, where one that pip has brought may not be
            os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
            load(
                path.stem,
                [str(SOURCE)],
                extra_cflags=["-O1", "-w"],
                build_directory=str(path.parent),
                is_python_module=False,
            )
    return path


def _place() -> Path:
    import torch

    key = hashlib.sha256(SOURCE.read_bytes() + f"{torch.__version__}{sys.version}".encode()).hexdigest()[:12]
    folder = Path(os.environ.get("PRETEND_DEVICE", Path(sys.prefix) / "pretend-device")) / key
    return folder / f"pretend_device_{key}.so"


def _found(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
