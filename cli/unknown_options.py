"""Options that a command has not: which one, or which setting, somebody may have meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from ..training.config.field_names import ALSO, KEYWORDS, plain_name
from .train_flags import PLACES

if TYPE_CHECKING:
    from ..training.config.setting_names import SettingPlace

#: what is neither an option nor a setting, but part of another option's value
_PARTS = {"alpha": "--partition dirichlet:VALUE", "dirichlet-alpha": "--partition dirichlet:VALUE"}
#: what other programs call an option
_ALSO = {"output": "out", "output-dir": "out", "outdir": "out", "save": "out", "overwrite": "force"}
_AS_SETTING = "--set data.partition="


def explain(error: click.NoSuchOption) -> click.UsageError:
    """Return the refusal of an unknown option, with the option or the setting that was meant, where that is known.

    click offers the options of nearly the same letters, and counts their dashes: ``--out`` for ``--gpu``.
    """
    command = error.ctx.command if error.ctx is not None else None
    if command is None or not error.option_name.startswith("--"):
        return error
    flags = [flag for param in command.params for flag in (*param.opts, *param.secondary_opts) if flag[:2] == "--"]
    name = error.option_name.removeprefix("--")
    asked = command.name or ""
    offer = _of_field(name, flags) or _of_settings(asked, name, flags) or _nearest(name, flags)
    return click.UsageError(f"No such option '{error.option_name}'{offer}", error.ctx)


def _of_field(name: str, flags: list[str]) -> str:
    """Offer a flag by what papers and other programs call it, or nothing."""
    place = PLACES.get(f"--{name}") or KEYWORDS.get(plain_name(name)) or ALSO.get(plain_name(name))
    flag = next((flag for flag, its in PLACES.items() if its == place), None)
    return f"; did you mean '{flag}'?" if flag in flags else ""


def _of_settings(command: str, name: str, flags: list[str]) -> str:
    """Say how a command that trains takes the setting of a name, or nothing where it is none."""
    if command not in ("train", "sweep"):
        return ""
    if command == "sweep" and name == "method":
        return "; methods are varied: method=A,B,C"
    from ..training.config.setting_names import SettingPlace, places_of  # loads all methods

    places = [SettingPlace(PLACES[f"--{name}"])] if f"--{name}" in PLACES else places_of(name)
    ways = [_written(place, vary=command == "sweep") for place in places]
    if name in _PARTS:
        ways.insert(0, _PARTS[name] if "--partition" in flags else _PARTS[name].replace("--partition ", _AS_SETTING))
    return f"; write {', or '.join(ways)}" if ways else ""


def _written(place: SettingPlace, *, vary: bool) -> str:
    """How a setting is written in a command line, and how a sweep varies it."""
    of = place.words().removeprefix(place.place)
    return f"--set {place.place}=VALUE{of}" + (f", or {place.place}=A,B,C to vary it" if vary else "")


def _nearest(name: str, flags: list[str]) -> str:
    """Offer the flag of nearly the same letters; else one whose words are among those that were typed."""
    known = {flag.removeprefix("--"): flag for flag in flags}
    name = _ALSO.get(name, name)
    near = get_close_matches(name, known, 1) or [word for word in known if word in name.split("-")][:1]
    return f"; did you mean '{known[near[0]]}'?" if near else ""
