"""A ``torch.optim.Optimizer`` of the user's own, or torch's, over the views of the flat vector that a module has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import lru_cache, partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError
from ..import_string import ImportString, describe_error, describe_type
from ..settings.missing_code import needs_code
from ..settings.own_code import OwnCode, name_of
from ..user_code.resolve import CalledCode

if TYPE_CHECKING:
    from ..methods.base import ClientMethod
    from .worker_model import TrainableModel

Factory = Callable[[list[nn.Parameter]], Any]


def factory_of(name: str) -> Factory:
    """Return what makes the optimiser of a list of parameters.

    Raises:
        FedscopeError: the code is not here.
    """
    if not isinstance(name, OwnCode):
        raise FedscopeError(needs_code("client", name, "optimiser"))
    thing = name.thing
    if isinstance(thing, ImportString):
        found, arguments, keywords = thing.found(), thing.args, dict(thing.keywords)
        return lambda parameters: found(parameters, *arguments, **keywords)
    factory: Factory = thing
    return factory


def defined_as(name: OwnCode) -> str:
    """Return ``module:Class`` of what an optimiser is made by, as its own module has it, however it was spelled."""
    thing = name.thing
    return name_of(thing.found() if isinstance(thing, ImportString) else thing)


class OwnOptimiser:
    """Steps a bench's module; the rate of its groups follows the round's.

    Groups keep the ratio of their rates: one that was made with ten times the rate of the first that has any has that
    of the round ten times over, and one whose rate is 0 stays. Of the state, what has a parameter's shape is a vector
    [P], and a number is one a parameter.
    """

    def __init__(self, bench: TrainableModel, factory: Factory, name: str, kept: Mapping[str, np.ndarray]) -> None:
        self.bench, self.name = bench, name
        own = dict(bench.module.named_parameters(remove_duplicate=False))
        named = [(own[entry], where) for entry, where in bench.layout.slices.items()]
        self._places = {id(parameter): (parameter, where) for parameter, where in named if parameter.requires_grad}
        parameters = [parameter for parameter, _ in self._places.values()]
        self.optimiser = factory(parameters)
        self._ratios = ratios_of(self.optimiser)
        for key, values in kept.items():
            for k, (parameter, where) in enumerate(self._places.values()):
                whole = values.shape == (bench.layout.size,)
                part = torch.from_numpy(np.array(values[where] if whole else values[k]))
                part = part.to(bench.device).view(parameter.shape).to(parameter.dtype) if whole else part.float()
                self.optimiser.state[parameter][key] = part

    def step(self, w: Tensor, g: Tensor, eta: Any) -> None:
        """One step of the module, whose parameters are views of ``w`` and their gradients of ``g``."""
        for group, ratio in zip(self.optimiser.param_groups, self._ratios, strict=True):
            group["lr"] = eta * ratio
        self.optimiser.step()

    def state(self) -> Mapping[str, np.ndarray]:
        """What the optimiser holds, as arrays.

        Raises:
            FedscopeError: something else than numbers and tensors of the parameters' shapes.
        """
        kept: dict[str, np.ndarray] = {}
        for key in _keys(self.optimiser, self.name):
            values = [self.optimiser.state[parameter][key] for parameter, _ in self._places.values()]
            if all(_is_number(value) for value in values):
                kept[key] = np.array([float(value) for value in values], np.float64)
                continue
            flat = np.zeros(self.bench.layout.size, self.bench.layout.dtype)
            for (parameter, where), value in zip(self._places.values(), values, strict=True):
                if not isinstance(value, Tensor) or value.shape != parameter.shape:
                    raise FedscopeError(_unwritable(self.name, key))
                flat[where] = value.detach().cpu().numpy().ravel()
            kept[key] = flat
        return kept


def ratios_of(optimiser: torch.optim.Optimizer) -> list[float]:
    """Return the rate of each group as a multiple of the first one's that is not 0; 1 of groups without a rate.

    >>> a, b, c = (nn.Parameter(torch.zeros(1)) for _ in range(3))
    >>> ratios_of(torch.optim.SGD([{"params": [a], "lr": 0.0}, {"params": [b], "lr": 0.5}, {"params": [c], "lr": 1.0}]))
    [0.0, 1.0, 2.0]
    """
    rates = [None if group.get("lr") is None else float(group["lr"]) for group in optimiser.param_groups]
    first = next((rate for rate in rates if rate), 1.0)
    return [1.0 if rate is None else rate / first for rate in rates]


def own_rate(name: OwnCode, module: nn.Module) -> tuple[float | None, str, bool]:
    """Return the rate that an optimiser was given by its own code, None for none; the class of torch's that it is, ""
    for another; and whether its groups have several rates.

    A rate that is its class's default was given only if the code names it, and 1 stands for the round's.
    """
    shapes = [parameter.shape for parameter in module.parameters() if parameter.requires_grad]
    try:
        optimiser = factory_of(name)([nn.Parameter(torch.zeros(shape)) for shape in shapes])
        rates = [float(group["lr"]) for group in optimiser.param_groups if group.get("lr")]
        usual = _usual_rate(type(optimiser))
    except Exception:  # somebody else's code, which is refused in words before it steps
        return None, "", False
    kind = next((one.__name__ for one in type(optimiser).__mro__ if one.__module__.startswith("torch.optim.")), "")
    rate = rates[0] if rates else 1.0
    given = _names_rate(name.thing) or usual != rate
    return rate if given and rate != 1 else None, kind, len(set(rates)) > 1


def _usual_rate(kind: type) -> Any:
    """Return the rate that a class of optimisers has by default, which a derived one may hand on as a keyword."""
    own = (signature(vars(one)["__init__"]).parameters for one in kind.__mro__ if "__init__" in vars(one))
    return next((parameters["lr"].default for parameters in own if "lr" in parameters), None)


def _names_rate(thing: Any) -> bool:
    """Check whether what makes an optimiser, as far as it is no function, says its rate."""
    if not isinstance(thing, ImportString | partial | CalledCode):
        return False
    return "lr" in dict(thing.keywords) or bool(thing.args)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.dim() == 0)


def _keys(optimiser: Any, name: str) -> list[str]:
    """Return the names in the state of an optimiser's parameters, which all have the same."""
    sets = {tuple(state) for state in optimiser.state.values()}
    stepped = sum(len(group["params"]) for group in optimiser.param_groups)
    if len(sets) > 1 or len(optimiser.state) not in (0, stepped):
        raise FedscopeError(
            f"client.optimiser = {str(name)!r} keeps other things for some parameters than for others, so that a run "
            "cannot keep it; give --set client.optimiser_state=fresh"
        )
    keys = [key for keys in sets for key in keys]
    for key in keys:
        if not isinstance(key, str) or not key.isidentifier():
            raise FedscopeError(_unwritable(name, repr(key)))
    return keys


def _unwritable(name: str, what: str) -> str:
    return (
        f"client.optimiser = {str(name)!r} keeps {what}, which is neither a number nor of a parameter's shape, so that "
        "a run cannot keep it; give --set client.optimiser_state=fresh"
    )


def refuse_other(method: ClientMethod, module: nn.Module) -> None:
    """Refuse code that is no optimiser, on copies of a module's parameters, before anybody trains.

    Raises:
        FedscopeError: says what it does instead.
    """
    name = method.local_optimiser
    own = [deepcopy(parameter.detach()).cpu() for parameter in module.parameters() if parameter.requires_grad]
    _tried(name, factory_of(name), own, method)


def _tried(name: str, factory: Factory, values: Iterable[Tensor], method: ClientMethod) -> Any:
    """Return the optimiser after two steps along gradients of ones."""
    place = f"client.optimiser = {str(name)!r}"
    parameters = [nn.Parameter(value) for value in values]
    try:
        optimiser = factory(parameters)
    except Exception as error:
        raise FedscopeError(
            f"{place} failed with {describe_error(error)}; it is called with the list of a model's parameters, and "
            "gives a torch.optim.Optimizer"
        ) from error
    if not isinstance(optimiser, torch.optim.Optimizer):
        raise FedscopeError(f"{place} gives {describe_type(optimiser)}; it is to give a torch.optim.Optimizer")
    for group in optimiser.param_groups:
        if group.get("weight_decay") and method.weight_decay:
            raise FedscopeError(
                f"{place} has a weight decay of its own, {group['weight_decay']:g}, and client.weight_decay = "
                f"{method.weight_decay:g} is in the gradient that it steps along; give --set client.weight_decay=0, or "
                "weight_decay=0 among its arguments"
            )
    if not any(ratios_of(optimiser)):
        raise FedscopeError(
            f"{place} has a rate of 0 in all of its groups, so that nothing would be trained; give lr=1, which stands "
            "for the round's rate"
        )
    gradients = [torch.ones_like(parameter) for parameter in parameters]
    places = [parameter.data_ptr() for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    before: list[dict[str, Any]] = []
    for _ in range(2):
        before = [_settings(group) for group in optimiser.param_groups]
        try:
            optimiser.step()
        except Exception as error:
            raise FedscopeError(
                f"{place}: its step() failed with {describe_error(error)}; it is called without arguments, after the "
                "gradients were set"
            ) from error
    same = [one.grad is g and one.data_ptr() == at for one, g, at in zip(parameters, gradients, places, strict=True)]
    if not all(same):
        raise FedscopeError(
            f"{place}: its step() puts other tensors in the place of the parameters or their gradients; it is to "
            "change them in place, as torch's do"
        )
    if method.optimiser_state == "kept":
        for key in _keys(optimiser, name):
            for parameter in parameters:
                value = optimiser.state[parameter][key]
                if not _is_number(value) and getattr(value, "shape", None) != parameter.shape:
                    raise FedscopeError(_unwritable(name, key))
        if before != [_settings(group) for group in optimiser.param_groups]:
            raise FedscopeError(
                f"client.optimiser = {str(name)!r} keeps something in its groups, not by parameter, so that a run "
                "cannot keep it; give --set client.optimiser_state=fresh"
            )
    return optimiser


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: repr(value) for key, value in group.items() if key != "params"}


@lru_cache(maxsize=64)
def vectors_of(name: str) -> int:
    """Count the vectors that an optimiser keeps of a client, on a parameter of six numbers; 2 where it does not say."""
    if not isinstance(name, OwnCode):
        return 2
    try:
        parameter = nn.Parameter(torch.zeros(3, 2))
        parameter.grad = torch.ones(3, 2)
        optimiser = factory_of(name)([parameter])
        optimiser.step()
        return sum(not _is_number(value) for state in optimiser.state.values() for value in state.values())
    except Exception:  # somebody else's code, which is refused in words where it is to step
        return 2
