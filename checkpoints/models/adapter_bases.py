"""Which weights adapters adapt, as far as they say it, and whether two of them can adapt the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ..io.errors import FedscopeError
from ..io.untrusted import real_path, regular
from ..io.warn_user import warn_user
from .files import files_of_model

#: what ``adapter_config.json`` calls the base, and what a run says of its files
NAME, SHA256 = "base_model_name_or_path", "base_sha256"
#: how factors were begun, where PEFT takes what they then add out of the base's weights
INIT = "init_lora_weights"
#: marks settings of which an earlier version of fedscope kept a part
EARLIER = "earlier"
#: of the cache of huggingface_hub
_SNAPSHOT = re.compile(r"(?:^|/)models--([^/]+)/snapshots/[^/]+/?$")
_HUB = re.compile(r"[\w.-]+/[\w.-]+")


def changed_base(config: Mapping[str, Any]) -> str:
    """Return how an adapter's factors were begun, where that changes the weights that it adapts; "" where not.

    PiSSA, OLoRA, CorDA, LoRA-GA, LoftQ and KaSA adapt W less a part of it, or W rounded, and not W.

    >>> changed_base({"init_lora_weights": "pissa_niter_4"}), changed_base({"init_lora_weights": "gaussian"})
    ('pissa_niter_4', '')
    """
    how = config.get(INIT)
    if isinstance(how, str) and (how.lower().startswith(("pissa", "corda")) or how.lower() in _CHANGING):
        return how
    return "kasa" if config.get("kasa_config") else ""


_CHANGING = ("olora", "loftq", "lora_ga", "kasa")


def is_whole(settings: Mapping[str, Any]) -> bool:
    """Check whether settings are all that a configuration says, so that what they lack is not there."""
    return "r" in settings and EARLIER not in settings


def located(name: Any, *places: Path) -> str:
    """Name a base by its real path where it lies here: from the working folder or one of some places; else as it is
    called. "" for what is no name."""
    if not isinstance(name, str) or not name.strip():
        return ""
    for place in (Path(name), *(folder / name for folder in places)):
        try:
            if place.exists():
                return str(real_path(place))
        except (OSError, ValueError):  # no name of a file
            break
    return name


def refuse_other_base(one: object, of_one: Mapping[str, Any], other: object, of_other: Mapping[str, Any]) -> None:
    """Refuse two adapters of different weights, and warn where it cannot be told whether they are different.

    The weights' files are compared where both lie here; else the checksum that a run keeps; else the names alone.

    Args:
        one, other: what they are called; of_one, of_other: their settings.

    Raises:
        FedscopeError: names both bases.
    """
    names = of_one.get(NAME), of_other.get(NAME)
    begun = tuple(changed_base(settings) for settings in (of_one, of_other))
    if begun[0] != begun[1] and is_whole(of_one) and is_whole(of_other):
        said = [f"the base as {how} leaves it" if how else "the base as it is" for how in begun]
        raise FedscopeError(
            f"{one} adapts {said[0]}, {other} {said[1]}: what they add belongs to different weights, so they must not "
            "be averaged or compared; merge each into its base, or leave one out"
        )
    if not all(isinstance(name, str) and name for name in names):
        return
    match _compare(of_one, of_other):
        case "other":
            raise FedscopeError(
                f"{one} is an adapter of {names[0]}, {other} one of {names[1]}, which hold other weights, so they must "
                "not be averaged or compared; merge each into its base, or leave one out"
            )
        case "unsure":
            warn_user(
                f"the adapters name {names[0]} and {names[1]} as what they adapt, and nothing here says whether these "
                "are the same weights; adapters of different weights must not be averaged or compared"
            )


def _compare(of_one: Mapping[str, Any], of_other: Mapping[str, Any]) -> Literal["same", "unsure", "other"]:
    one, other = of_one[NAME], of_other[NAME]
    if _plain(one) == _plain(other) or (of_one.get(SHA256) and of_one.get(SHA256) == of_other.get(SHA256)):
        return "same"
    if (files := _files(one)) and (others := _files(other)):
        if [path.name for path in files] == [path.name for path in others]:
            return "same" if _contents(files, others) else "other"
        return "unsure"  # the same weights, perhaps, in another kind of files
    for path, told in ((one, of_other), (other, of_one)):
        if told.get(SHA256) and (found := _sum(path)):
            return "same" if found == told[SHA256] else "unsure"
    hub = all(_HUB.fullmatch(_plain(name)) for name in (one, other))
    return "same" if not hub and _last(one) == _last(other) else "unsure"


def _plain(name: str) -> str:
    """A name without what may be spelled in several ways.

    >>> _plain("/c/hub/models--org--net/snapshots/0a1b/"), _plain("./models/net/")
    ('org/net', 'models/net')
    """
    if (found := _SNAPSHOT.search(name)) and not Path(name).exists():
        return found[1].replace("--", "/", 1)
    return str(Path(name)) if name else ""


def _last(name: str) -> str:
    return _plain(name).rpartition("/")[2].casefold()


def _files(name: str) -> list[Path]:
    """The files of the weights; none where they do not lie here."""
    if not Path(name).exists():
        return []
    try:
        return files_of_model(Path(name))
    except (FedscopeError, OSError):
        return []


def _contents(files: list[Path], others: list[Path]) -> bool:
    """Check whether files hold the same bytes."""
    pairs = list(zip(files, others, strict=True))
    if any(one.stat().st_size != other.stat().st_size for one, other in pairs):
        return False
    return all(one.samefile(other) or _known_sum(one) == _known_sum(other) for one, other in pairs)


def sum_of_files(files: Iterable[Path]) -> str:
    """Return the sha256 of the names and checksums of files, as a run keeps it of its base."""
    said = hashlib.sha256()
    for file in files:
        said.update(f"{file.name} {_sum_of_file(file)}\n".encode())
    return said.hexdigest()


def _sum_of_file(path: Path) -> str:
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _known_sum(path: Path) -> str:
    """The same, once for many adapters that are compared: each client's may name the same large base."""
    state = path.stat()
    return _remembered_sum(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1024)
def _remembered_sum(path: Path, _size: int, _changed: int) -> str:
    return _sum_of_file(path)


def _sum(name: str) -> str:
    """The checksum of a base that lies here, as runs keep it; "" of another."""
    files = _files(name)
    return sum_of_files(files) if files else ""
