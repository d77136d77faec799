"""Copies of modules, of those too that ``copy.deepcopy`` refuses, and the check that a copy stands on its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from functools import partial
from types import MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ..checkpoints import FedscopeError
from .accelerators import is_out_of_memory
from .recorded_names import place_of_tensor
from .taken_logits import return_logits

#: marks a tensor of a copy that stands for one which the module had computed from its weights
_STAND_IN = "_fedscope_stand_in"
#: marks a buffer that nothing writes to: all copies share it
_SHARED = "_fedscope_shared"


def share(buffer: Tensor) -> Tensor:
    """Have all copies of the module that gets this buffer share it; nothing may write to it, in training neither."""
    setattr(buffer, _SHARED, True)
    return buffer


def is_shared(buffer: Tensor) -> bool:
    """Check whether :func:`share` was told of a buffer."""
    return hasattr(buffer, _SHARED)


def copy_module(
    module: nn.Module, *, weights: bool = True, without: Collection[str] = (), hooked: bool = True
) -> nn.Module:
    """Copy a module such that it shares no weights with it, but for buffers that :func:`share` marks.

    torch refuses to copy a tensor that was computed from others, as the ``weight`` is that ``weight_norm`` and pruning
    keep in addition to their parameters. It is taken by value: a forward pass computes it anew, and
    :func:`refuse_borrowed` refuses a module that does not. What Python cannot copy (locks, open files, generators) both
    share. Where the module returns logits in something else, the copy returns the logits
    (:func:`~fedscope.evaluation.taken_logits.return_logits`). Hooks on its parameters' gradients are on the
    copy's, too, unless it is not ``hooked``.

    Args:
        weights: False has NaN in place of the parameters, which take no memory.
        without: names of parameters of which this holds alone. One that has another name, too, is copied.
        hooked: False takes off all hooks of a backward pass, so that derivatives are those of the function. Hooks of a
            forward pass stay: they are part of what the module answers.

    Raises:
        FedscopeError: it cannot be copied all the same; says why.

    >>> normed = torch.nn.utils.weight_norm(nn.Linear(2, 1))
    >>> sorted(copy_module(normed).state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    memo: dict[int, Any] = {}
    for value in _left_out(module, without) if weights else module.parameters():
        empty = torch.full((), float("nan"), dtype=value.dtype, device=value.device).expand(value.shape)
        memo[id(value)] = nn.Parameter(empty, requires_grad=value.requires_grad)
    memo |= {id(value): value for value in module.buffers() if hasattr(value, _SHARED)}
    of_module = {_memory(value) for value in module.parameters()} - {0}
    buffers = {id(value) for value in module.buffers()}
    for thing in _inside(module):
        if isinstance(thing, Tensor):
            if isinstance(thing, nn.Parameter) or id(thing) in buffers:
                continue
            of_weights = not thing.is_leaf or _memory(thing) in of_module
            if of_weights or thing.requires_grad:
                memo[id(thing)] = _by_value(thing, of_weights)
        elif not isinstance(thing, nn.Module) and not _can_be_copied(thing):
            memo[id(thing)] = thing
    try:
        copy = deepcopy(module, memo)
    except Exception as error:  # whatever a class of the user's own raises
        if is_out_of_memory(error):
            raise
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise FedscopeError(
            f"a {type(module).__name__} cannot be copied ({type(error).__name__}: {first}), and models are formed in "
            "copies; take what is no part of the network out of it, or give its class a __deepcopy__"
        ) from error
    _compute_anew(copy)
    return_logits(copy)
    if hooked:
        _hook_alike(module, copy)
    else:
        _unhook(module, copy)
    return copy


def _hook_alike(module: nn.Module, copy: nn.Module) -> None:
    """Have the gradients of a copy's parameters pass the same hooks (``weight.register_hook``), which ``deepcopy``
    leaves out."""
    there = dict(copy.named_parameters())
    for name, value in module.named_parameters():
        own = there.get(name)
        if value._backward_hooks and own is not None and own is not value and own.requires_grad:
            for hook in value._backward_hooks.values():
                own.register_hook(hook)  # type: ignore[no-untyped-call]


def _unhook(module: nn.Module, copy: nn.Module) -> None:
    """Take the hooks of a backward pass off a copy, those of its modules and of its parameters; what the module shares
    with it, as by a ``__deepcopy__`` of its own, keeps them."""
    theirs = {id(thing) for thing in (*module.modules(), *module.parameters())}
    for part in copy.modules():
        # past a __setattr__ of its class, which may refuse; new ones, as a __deepcopy__ may have kept the module's
        own = vars(part)
        hooked = [name for name in ("_backward_hooks", "_backward_pre_hooks") if own.get(name)]
        if hooked and id(part) not in theirs:
            own.update({name: OrderedDict() for name in hooked}, _is_full_backward_hook=None)
    for parameter in copy.parameters():
        if id(parameter) in theirs:
            continue
        # deepcopy leaves these out, but a class may copy its parameters otherwise
        for hooks in (parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None)):
            if hooks:
                hooks.clear()


def _left_out(module: nn.Module, names: Collection[str]) -> list[nn.Parameter]:
    """Return the parameters all of whose names are among these."""
    named = list(module.named_parameters(remove_duplicate=False))
    kept = {id(value) for name, value in named if name not in names}
    return [value for name, value in named if name in names and id(value) not in kept]


def to_device(module: nn.Module, device: torch.device | str) -> nn.Module:
    """Put a module on a device, in which layers that share a parameter still do.

    torch puts new parameters in place of the old ones where the device's tensors are of another make, as those of
    backends that it got from elsewhere are, and then one for each layer.
    """
    if str(device).startswith("cpu"):
        return module.to(device)
    places: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        places.setdefault(id(parameter), []).append(name)
    there = module.to(device)
    for first, *others in places.values():
        shared = there.get_parameter(first)
        for name in others:
            layer, leaf = place_of_tensor(there, name)
            layer._parameters[leaf] = shared
    return there


def refuse_borrowed(original: nn.Module, copy: nn.Module, x: Tensor) -> None:
    """Refuse a copy that computes with weights which are not its own: it would answer the same whatever these are.

    A function that closes over the module does so (``lambda x: net.fc(x)``), and a layer whose ``weight`` is computed
    by a hook, where something uses it without calling the layer. Seen in one pass, by which memory it reads.

    Args:
        x: a sample, as the copy takes it.

    Raises:
        FedscopeError: says what it reads.
    """
    theirs = {_memory(value): name for name, value in (*original.named_parameters(), *original.named_buffers())}
    # held to the end: the pass puts others in their place, and an address that is free is given to something else
    stand_ins = [thing for thing in _inside(copy) if isinstance(thing, Tensor) and hasattr(thing, _STAND_IN)]
    stale = {_memory(thing): "" for thing in stand_ins}
    own = {_memory(value) for value in (x, *copy.parameters(), *copy.buffers())}
    watched = {at: name for at, name in {**theirs, **stale}.items() if at and at not in own}
    if not watched:
        return
    with torch.inference_mode(), _Watch(watched) as seen:
        copy(x)
    if seen.met is None:
        return
    what = type(original).__name__
    if seen.met:
        raise FedscopeError(
            f"the module computes with {seen.met} of the {what} that it was copied from, as a function does that "
            "closes over the module, so it would answer the same for any weights; make it a method, which reaches its "
            "module by self"
        )
    raise FedscopeError(
        f"a {what} computes with a tensor that it made of its weights before and does not make anew in forward, so it "
        "would answer the same for any weights; compute it in forward, make it permanent "
        "(torch.nn.utils.remove_weight_norm, remove_spectral_norm, prune.remove), or use "
        "torch.nn.utils.parametrizations"
    )


class _Watch(TorchFunctionMode):
    """Notes the first of some tensors that is computed with.

    Seen where Python calls torch: a mode below that (``TorchDispatchMode``) has torch import its compiler, which takes
    a second of each command.

    Args:
        watched: a name, by where the memory of a tensor lies.
    """

    def __init__(self, watched: Mapping[int, str]) -> None:
        super().__init__()
        self._watched = watched
        self.met: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.met is None:
            for value in tree_leaves((args, kwargs)):
                if isinstance(value, Tensor) and (at := _memory(value)) in self._watched:
                    self.met = self._watched[at]
                    break
        return func(*args, **(kwargs or {}))


def _memory(value: Tensor) -> int:
    """Return the address of a tensor's memory; 0 where it has none."""
    try:
        return value.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse
        return 0


def _by_value(tensor: Tensor, of_weights: bool) -> Tensor:
    value = tensor.detach().clone()
    if of_weights:
        setattr(value, _STAND_IN, True)
    return value


def _can_be_copied(thing: Any) -> bool:
    """Check whether ``deepcopy`` takes this thing by itself."""
    if hasattr(type(thing), "__deepcopy__"):
        return True
    try:
        thing.__reduce_ex__(4)
    except Exception:  # whatever a class of the user's own raises
        return False
    return True


def _inside(module: nn.Module) -> Iterator[Any]:
    """Yield all that hangs on a module, each thing once: what ``deepcopy`` would visit."""
    seen: dict[int, Any] = {}  # holds them, so that no number is given twice
    stack: list[Any] = [module]
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | complex | type | None):
            continue
        seen[id(thing)] = thing
        yield thing
        if isinstance(thing, Mapping):
            stack.extend(thing.keys())
            stack.extend(thing.values())
        elif isinstance(thing, list | tuple | set | frozenset):
            stack.extend(thing)
        elif isinstance(thing, MethodType):
            stack.append(thing.__self__)
        elif isinstance(thing, partial):
            stack.extend((thing.func, thing.args, thing.keywords))
        elif not isinstance(thing, Tensor | ModuleType) and isinstance(getattr(thing, "__dict__", None), dict):
            stack.append(vars(thing))


def _compute_anew(module: nn.Module) -> None:
    """Have a copy compute its parametrized weights at each access, also within ``parametrize.cached()``.

    torch keeps them there by the module that was parametrized first, for all of its copies and all threads: one copy
    would be given the weights of another.
    """
    for part in module.modules():
        if parametrize.is_parametrized(part):
            own = {name: value for name, value in vars(type(part)).items() if name not in _NOT_COPIED}
            computed: Any = part.parametrizations
            own |= {name: _without_cache(own[name], name) for name in computed if name in own}
            # past a __setattr__ of its class, which may refuse
            object.__setattr__(part, "__class__", type(type(part).__name__, type(part).__bases__, own))


# what a class has of its own; and what refuses to send a parametrized module to another process
_NOT_COPIED = ("__dict__", "__weakref__", "__getstate__")


def _without_cache(known: property, name: str) -> property:
    return property(lambda self: self.parametrizations[name](), known.fset)
