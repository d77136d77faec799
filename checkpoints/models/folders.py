"""A model in a folder, as ``save_pretrained`` writes it: one file, or several parts and an index that names them; or as
torch writes distributed checkpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..io.errors import FedscopeError, list_few
from ..io.untrusted import read_json
from .distributed import METADATA, is_distributed

INDEX = ".index.json"
#: the files of a whole model, the first that is there being meant
_WHOLE = tuple(
    f"{name}{ending}"
    for name in (
        "model.safetensors",
        "pytorch_model.bin",
        "diffusion_pytorch_model.safetensors",
        "diffusion_pytorch_model.bin",
        "adapter_model.safetensors",
        "adapter_model.bin",
    )
    for ending in ("", INDEX)
)
_ABOUT = ("config.json", "adapter_config.json", "model_index.json")
# What a trainer saves beside a model, and is none: Hugging Face's, accelerate's (one of each by number), DeepSpeed's.
_NUMBERED = "(optimizer|scheduler|sampler|scaler|dl_state_dict)(_[0-9]+)?"
_BESIDE = re.compile(rf"(training_args|{_NUMBERED}|rng_state\w*|\w+_optim_states)\.(bin|pt|pth)", re.ASCII)
# What many training loops of torch call a checkpoint, though it is no archive of tar.
_TAR = (".pth.tar", ".pt.tar")
PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")


def model_in(folder: Path, suffixes: Sequence[str]) -> Path | None:
    """Find the one model of a folder: its file, its index, or the folder itself where it lies in parts without an
    index; None where it has none or several.

    Args:
        suffixes: that models' files have.
    """
    if is_distributed(folder):
        return folder / METADATA
    names = model_names(folder, suffixes)
    parts = [PART.fullmatch(name) for name in names]
    if len(names) == 1 and (parts[0] is None or int(parts[0][3]) == 1):  # one part of several is not a whole
        return folder / names[0]
    whole = next((name for name in _WHOLE if (folder / name).is_file()), None)
    about = [*_ABOUT, *(name for name in _WHOLE if name.endswith(INDEX))]
    if whole is not None and any((folder / name).is_file() for name in about):
        return folder / whole
    return (
        folder if parts and all(parts) and len({(part[1], part[3], part[4]) for part in parts if part}) == 1 else None
    )


def model_names(folder: Path, suffixes: Sequence[str]) -> list[str]:
    """Return the names of all model files in a folder, sorted; none where it cannot be looked into."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError:
        return []
    return [name for name in names if is_model_name(name, suffixes)]


def is_model_name(name: str, suffixes: Sequence[str]) -> bool:
    """Check whether a file of this name holds a model, and not what a trainer keeps next to it.

    >>> is_model_name("a.PT", [".pt"]), is_model_name("optimizer_1.pt", [".pt"]), is_model_name(".a.pt", [".pt"])
    (True, False, False)
    """
    hidden = name.startswith(".")
    return not hidden and has_ending(name, suffixes) and not _BESIDE.fullmatch(name)


def has_ending(name: str, suffixes: Sequence[str]) -> bool:
    """Check whether a path ends as those of models do.

    >>> has_ending("best.pth", [".pth"]), has_ending("best.pth.tar", [".pth"]), has_ending("data.tar", [".pth"])
    (True, True, False)
    """
    return Path(name).suffix.lower() in suffixes or name.lower().endswith(_TAR)


def parts_of(path: Path, suffixes: Sequence[str]) -> dict[Path, list[str] | None] | None:
    """Return the files that a model lies in, each with the names that it is to hold, if an index says them; None where
    it is one file.

    Args:
        path: a file, an index, or the folder of parts that :func:`model_in` has found.

    Raises:
        FedscopeError: an index that is none; parts that are not there, by name.
    """
    if path.name.endswith(INDEX):
        return _of_index(path)
    if not path.is_dir():
        return None
    part = PART.fullmatch(model_names(path, suffixes)[0])
    assert part is not None, "the folder was found for its parts"
    names = [f"{part[1]}-{i:05d}-of-{part[3]}{part[4]}" for i in range(1, int(part[3]) + 1)]
    missing = [name for name in names if not (path / name).is_file()]
    if missing:
        raise FedscopeError(_missing_parts(path, len(names), missing))
    return {path / name: None for name in names}


def _of_index(path: Path) -> dict[Path, list[str] | None]:
    held = read_json(path, "an index of a model's parts", "copy or save it again")
    named = held.get("weight_map") if isinstance(held, dict) else None
    if not isinstance(named, dict) or not named or not all(isinstance(file, str) for file in named.values()):
        raise FedscopeError(f"{path} names no parts of a model (weight_map); copy or save it again")
    files: dict[Path, list[str] | None] = {}
    for name, file in named.items():
        if file != Path(file).name or file in ("", ".", ".."):
            raise FedscopeError(f"{path} names {file!r}, which is not a file beside it; copy or save it again")
        names = files.setdefault(path.parent / file, [])
        assert names is not None
        names.append(name)
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise FedscopeError(_missing_parts(path, len(files), missing))
    return files


def _missing_parts(path: Path, count: int, missing: Sequence[str]) -> str:
    one = len(missing) == 1
    which = f"{list_few(missing, 4)} {'is' if one else 'are'} not there; copy {'it' if one else 'them'} again"
    return f"{path}: of a model's {count} parts {which}"
