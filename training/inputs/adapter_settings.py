"""What models say of the scale and the base of their adapters, compared at one place: files, runs, modules, and the
architecture that they are measured in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError, Layout, Model, Run, parse_address
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapter_bases import INIT, NAME, SHA256, changed_base, located, refuse_other_base
from ...checkpoints.models.adapters import (
    ABOUT_BOTH,
    Told,
    factors_in,
    refuse_other_scale,
    scale_beside,
    scale_of_module,
    settings_of_adapters,
    settings_of_run,
)
from ...checkpoints.models.files import file_and_key
from ...checkpoints.models.products import adapters_of

if TYPE_CHECKING:
    from torch import nn

#: scales that differ by less are the same
_SAME = 1e-6


def settings_of_model(model: Any) -> dict[str, Any]:
    """Return what a model says of its adapters: an address, a file, a model that was loaded, or a module; nothing where
    it says nothing."""
    if isinstance(model, Model):
        return settings_of_run(model.run.info) if model.run is not None else _of_address(model.address)
    if isinstance(model, str | Path):
        return _of_address(str(model))
    return scale_of_module(model)


def told_by(models: Sequence[Any], names: Sequence[str]) -> tuple[Told, ...]:
    """Return what models say of their adapters, each with its name. A run is opened once, however many are its."""
    of_runs: dict[str, dict[str, Any]] = {}
    told: list[Told] = []
    for model, name in zip(models, names, strict=True):
        address = parse_address(str(model)) if isinstance(model, str | Path) else None
        if address is None or address.round is None:
            told.append((name, settings_of_model(model)))
            continue
        if address.path not in of_runs:
            of_runs[address.path] = settings_of_model(model)
        told.append((name, of_runs[address.path]))
    return tuple(told)


def settings_of_architecture(architecture: Any, module: nn.Module) -> dict[str, Any]:
    """Return what an architecture says of the adapters in it: the folder of one (``hf:FOLDER``), or its module,
    renamed or not."""
    from ...evaluation.recorded_names import own_module
    from ..models.pretrained import PretrainedFolder, is_pretrained

    if is_pretrained(architecture):
        return scale_beside(PretrainedFolder(path=architecture).folder)
    return scale_of_module(own_module(module))


def adapters_of_module(module: nn.Module, names: Iterable[str]) -> dict[str, Any]:
    """Return what ``run.json`` says of the adapters of a module that is trained: its entry ``adapters``, or nothing.

    Args:
        module: renamed or not; names: of its weights.
    """
    from ...evaluation.recorded_names import own_module

    return settings_of_adapters(names, ("the model", scale_of_module(own_module(module))), None)


def refuse_unlike(told: Sequence[Told], layout: Layout, *, base: object = None) -> None:
    """Refuse models whose adapters are scaled differently, or adapt different weights, as far as they say it.

    Args:
        told: which model says what.
        layout: of all of them.
        base: the weights that were given for all; that models say others of theirs is a warning then.

    Raises:
        FedscopeError: names two of them.
    """
    some = [(name, settings) for name, settings in told if settings]
    for name, settings in some[1:]:
        first, own = some[0][1], settings
        if base is not None:
            _warn_of_other_base(some[0], (name, settings), base)
            first, own = _without_base(first), _without_base(own)
        refuse_other_scale(some[0][0], first, name, own)
        _refuse_other_factor(some[0], (name, settings), layout)


def refuse_misfit_adapters(
    told: Sequence[Told], architecture: Any, module: nn.Module, layout: Layout, base: object, *, is_given: bool
) -> None:
    """Refuse models in an architecture that scales their products otherwise, or beside weights that they do not adapt:
    their losses were those of other adapters.

    Args:
        architecture, module: what was given, and what was made of it; layout: of the models.
        base: the weights that the adapters are put beside; is_given: whether they were asked for, which counts.

    Raises:
        FedscopeError: names the model and what it does not fit.
    """
    if not factors_in(layout.names):
        return
    for name, settings in told:
        if (how := changed_base(settings)) and base is not None:
            warn_user(
                f"{name} was begun with {INIT} = {how!r}, which changes the weights that it adapts; the base {base} "
                "must be these changed weights"
            )
            break
    if base is not None and not is_given:
        for name, settings in told:
            try:
                refuse_other_base(name, _base_alone(settings), "the architecture", {NAME: located(str(base))})
            except FedscopeError as error:
                raise FedscopeError(
                    f"{ABOUT_BOTH.split(str(error))[0]}; give the weights of these adapters with --base"
                ) from None
    own = _without_base(settings_of_architecture(architecture, module))
    if not own:
        return
    called = f"--model {architecture}" if isinstance(architecture, str) else "the module"
    for name, settings in told:
        try:
            refuse_unlike([(name, _without_base(settings)), (called, own)], layout)
        except FedscopeError as error:
            raise FedscopeError(
                f"{ABOUT_BOTH.split(str(error))[0]}, and an architecture computes with its own; give that of these "
                "adapters with --model, as hf:FOLDER of one of them"
            ) from None


def refuse_unlike_runs(runs: Sequence[Run]) -> None:
    """Refuse runs whose adapters are scaled differently in one architecture, which has one scale.

    Raises:
        FedscopeError: names two of them.
    """
    # each is measured beside its own base
    told: list[Told] = [(str(run.path), _without_base(settings_of_run(run.info))) for run in runs]
    if len(runs) > 1:
        refuse_unlike(told, runs[0].layout)


def _of_address(address: str) -> dict[str, Any]:
    parsed = parse_address(address)
    if parsed.round is None:
        return scale_beside(Path(file_and_key(parsed.path)[0]))
    return settings_of_run(Run.open(parsed.path).info)


def _warn_of_other_base(one: Told, other: Told, base: object) -> None:
    try:
        refuse_other_base(one[0], _base_alone(one[1]), other[0], _base_alone(other[1]))
    except FedscopeError as error:
        warn_user(f"{ABOUT_BOTH.split(str(error))[0]}; both are measured beside {base}")


def _without_base(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in (NAME, SHA256)}


def _base_alone(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in (NAME, SHA256)}


def _refuse_other_factor(one: Told, other: Told, layout: Layout) -> None:
    """Refuse two adapters by the factors that their settings come to, where these are not the same ones."""
    pair = [adapters_of(layout, settings) for _, settings in (one, other)]
    if pair[0] is None or pair[1] is None or not (pair[0].is_scaled and pair[1].is_scaled):
        return
    for mine, theirs in zip(pair[0].products, pair[1].products, strict=False):
        if abs(mine.scale - theirs.scale) > _SAME * abs(mine.scale):
            raise FedscopeError(
                f"{one[0]} is an adapter that scales B·A by {mine.scale:g} at {mine.name}, {other[0]} one by "
                f"{theirs.scale:g}: their products differ where their factors do not, so these must not be averaged or "
                "compared as they are; merge them into their base, or leave one out"
            )
