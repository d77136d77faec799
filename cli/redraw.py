"""What ``--redraw`` may draw: the result that lies there, unless the command names another one.

Nothing is opened for it but ``run.json``: a result is drawn again without its runs, and after they have gone on. What
was typed is compared with what the result says of itself. What was not typed is not asked for, and a word whose meaning
grows with its run, such as ``last``, is what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import click

from ..checkpoints import FedscopeError, real_path
from ..checkpoints.io.errors import list_few, spans
from ..checkpoints.io.untrusted import at_home
from .redraw_settings import ADDRESS, RANGE, Attrs, addresses_of, mistyped_rounds, other_setting, words_of
from .settings_diff import option_differs


def refuse_another(stored: Sequence[tuple[Path, Attrs]]) -> None:
    """Refuse to draw again where the command names another result than the one that lies there.

    Args:
        stored: the main file of each part that was read, and its provenance.

    Raises:
        FedscopeError: other runs, models, rounds or settings than the stored ones; says what the file holds.
    """
    context = click.get_current_context(silent=True)
    if context is None or not stored:
        return
    typed = {
        param: context.params[param.name]
        for param in context.command.params
        if param.name in context.params
        and context.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE
    }
    for file, what in _others(typed, stored):
        raise FedscopeError(
            f"{file} holds another result, of {what}; leave --redraw out with another --out, or ask for what it holds"
        )


def _others(typed: Mapping[click.Parameter, Any], stored: Sequence[tuple[Path, Attrs]]) -> Iterator[tuple[Path, str]]:
    """In what the stored result is another than the one that was typed, with the file that says it."""
    given = {str(param.name): value for param, value in typed.items()}
    if what := _other_models(given, [attrs for _, attrs in stored]):
        yield stored[0][0], what
    for place, (file, kept) in enumerate(stored):
        if numbers := mistyped_rounds(given, kept, place, len(stored)):
            yield file, f"round{'s' if len(numbers) > 1 else ''} {spans(numbers)}"
        for param, value in typed.items():
            if (found := other_setting(str(param.name), value, kept, param)) is not None:
                yield file, "another surface" if param.name == "files" else option_differs(param, *found)


def _other_models(given: Mapping[str, Any], stored: Sequence[Attrs]) -> str:
    """What the results are of, in words, where it is something else than what was typed; else ""."""
    words = words_of(given) + [at_home(str(one)) for one in given.get("show") or ()]
    runs = [one for own in _once([one] for attrs in stored for one in _runs_of(attrs)) for one in own]
    addresses = [one for own in _once(addresses_of(attrs) for attrs in stored) for one in own]
    about, paths = _Runs(runs), [str(one["path"]) for one in runs]
    if not (addresses or paths) or not words or ("federation" in given and Path(words[0]).is_file()):
        return ""
    if _covered(words, addresses or paths, about.covers if addresses else about.holds):
        return ""
    if again := about.made_again(words):
        return f"{again} before it was made again"
    what = "model" if addresses else "run"
    return f"the {what}{'s' if len(addresses or paths) > 1 else ''} {list_few(addresses or paths, 6)}"


def _once(lists: Iterable[Any]) -> list[Any]:
    """Each list once: several results are of the same models, on other samples."""
    found: list[Any] = []
    for one in lists:
        if one not in found:
            found.append(one)
    return found


def _runs_of(attrs: Attrs) -> list[Attrs]:
    said = attrs.get("run")
    return [one for one in (said if isinstance(said, list) else [said]) if isinstance(one, Mapping) and "path" in one]


def _covered(words: Sequence[str], stored: Sequence[str], covers: Callable[[str, str], str]) -> bool:
    """Check whether what was typed is what is stored, in its order.

    Args:
        covers: whether a word stands for a stored name alone, ``one``, or perhaps for the next ones, too, ``many``.
    """
    reached = {(0, 0)}  # how many words and names are told, at a time
    for _ in range(len(words) + len(stored)):
        further = set()
        for i, j in reached:
            if j < len(stored) and i < len(words) and (how := covers(words[i], stored[j])):
                further.add((i + 1, j + 1))
                if how == "many":
                    further.add((i, j + 1))
        if (len(words), len(stored)) in further:
            return True
        reached = further
    return False


class _Runs:
    """The runs that results are of, and which of them a word names."""

    def __init__(self, runs: Sequence[Attrs]) -> None:
        self.created = {str(one["path"]): one.get("created") for one in runs}
        self.is_run = cache(self._is_run)

    def made_again(self, words: Sequence[str]) -> str:
        """A stored run of which another one has taken the place, among the runs and addresses that were typed."""
        for word in words:
            path = word if word in self.created else word.rpartition("@")[0]
            if path in self.created and not self.is_run(path, path):
                return path
        return ""

    def _is_run(self, typed: str, path: str) -> bool:
        """Check whether a folder that was typed is a stored run: by its name, wherever it lies now, and where it is
        there by when it was made; of several runs of one name by what stands before it, too."""
        folder = real_path(typed)
        if not {Path(typed).name, folder.name} & {PurePath(path).name, real_path(path).name}:
            return False
        alike = {other for other in self.created if PurePath(other).name == PurePath(path).name}
        if len(alike) > 1 and not _ends_with(folder, path) and typed != path:
            return False
        made, created = _created(folder), self.created.get(path)
        return made is None or created is None or made == created

    def holds(self, typed: str, path: str) -> str:
        """How a word covers a run: the run or a round of it, or a folder of a sweep's runs."""
        if self.is_run(typed, path):
            return "one"
        head = typed.rpartition("@")[0]
        if head and not Path(typed).exists() and self.is_run(head, path):
            return "one"
        return "many" if PurePath(path).parent.name == real_path(typed).name else ""

    def covers(self, typed: str, address: str) -> str:
        """How a word covers a model: as its address, as the round or the run that it is of, or as a file."""
        there, here = ADDRESS.fullmatch(address), ADDRESS.fullmatch(typed)
        if there is None or str(there[1]) not in self.created:
            return _covers_file(typed, address)
        if here is None:
            return "many" if self.is_run(typed, there[1]) else ""
        if not self.is_run(here[1], there[1]):
            return ""
        several = here[2] == "all" or ":" in here[2] or "," in here[2] or bool(RANGE.fullmatch(here[2]))
        if here[2] != there[2] and (here[2].isdecimal() or there[2] == "last"):
            return ""
        if _plain(here[3]) == _plain(there[3]):
            return "many" if several else "one"
        return "many" if here[3] is None else ""


def _plain(which: str | None) -> str:
    return (which or "").replace(" ", "")


def _ends_with(folder: Path, path: str) -> bool:
    """Check whether a folder may be what a path led to from another place."""
    parts = [part for part in PurePath(path).parts if part not in ("..", ".")]
    return list(folder.parts[-len(parts) :]) == parts


def _created(folder: Path) -> Any:
    """When a run was made; None where it is not there, or does not say it."""
    import json

    try:
        said = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return said.get("created") if isinstance(said, dict) else None


def _covers_file(typed: str, address: str) -> str:
    """A file by its name, wherever it lies; of a folder or a pattern all that are in it."""
    if Path(typed).name == Path(address).name:
        return "one"
    if fnmatch(Path(address).name, re.sub(r"\{\w+\}", "*", Path(typed).name)):
        return "many"
    return "many" if Path(typed).name in Path(address).parts else ""
