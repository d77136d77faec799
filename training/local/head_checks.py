"""Whether the layer that is taken for a model's head is one: a pass shows what is called, and what the outputs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError
from ...evaluation.model_replica import FlatModule
from ...evaluation.seeded import forked
from ..models.custom import Factory, OwnModel
from ..models.pretrained import PretrainedFolder
from ..settings.registry import method_name

if TYPE_CHECKING:
    from ...evaluation.samples import Samples
    from ..config.config import Config
    from ..models.model_info import ModelInfo


@dataclass(frozen=True)
class Seen:
    """What a pass over two samples shows.

    Attributes:
        called: the linear layers that were called, in order.
        used: the linear layers on whose weight the outputs depend.
        outputs: the shape of a sample's outputs; () for one number.
    """

    called: tuple[str, ...]
    used: frozenset[str]
    outputs: tuple[int, ...]

    def fits(self, outputs: int) -> bool:
        """Check whether a layer with so many outputs may give the model's: [C], [L, C], [C, L], or them all at once."""
        return outputs in (*self.outputs, prod(self.outputs))


@dataclass(frozen=True)
class Asking:
    """What needs to know the head.

    Attributes:
        place: in words; use: what it does with the head, ``none`` if it does without where there is none.
        without: what to give where no layer is the head; named: what to give where one is.
        itself: what to give where the refused layer may be the head: of several, or of outputs that forward cuts.
    """

    place: str
    use: str
    without: str
    named: str = "name the head: --set model.head={}"
    itself: str = ""


def refuse_other_head(
    config: Config, module: nn.Module, facts: ModelInfo, samples: Samples, asking: Sequence[Asking] | None = None
) -> None:
    """Refuse a layer that is no head where a method needs one: forward does not call it, or its outputs are not the
    model's.

    A layer that ``model.head`` names may have other outputs, unless the method asks it for answers. Networks of
    fedscope's own end in their heads. A module that fails here fails where it is trained, too, and is told there.

    Args:
        asking: by default what does in a training.

    Raises:
        FedscopeError: names the layer, and the one that is the head, if there is one.
    """
    given = config.model.architecture.head
    if asking is None:
        own = isinstance(config.model.architecture, Factory | OwnModel | PretrainedFolder) or given is not None
        asking = in_training(config) if own else ()
    if facts.head is None or not asking:
        return
    seen = seen_in_pass(module, samples)
    if seen is None:
        return
    layer = module.get_submodule(facts.head)
    assert isinstance(layer, nn.Linear)
    linear = {name: found for name, found in module.named_modules() if isinstance(found, nn.Linear)}
    own_names = {name for name, found in linear.items() if found is layer}
    called = bool(own_names & set(seen.called))
    fits = seen.fits(layer.out_features)
    better = [name for name in seen.called if seen.fits(linear[name].out_features) and linear[name] is not layer]
    for one in asking:
        idle = not called and (one.use in ("inputs", "both") or not own_names & seen.used)
        other = not fits and (given is None or one.use in ("outputs", "both"))
        if not (idle or other) or (one.use == "none" and not better):
            continue
        what = f"model.head = {given!r}" if given is not None else f"its last linear layer {facts.head!r}"
        model = " x ".join(map(str, seen.outputs)) or "1"
        why = "is not called in forward" if idle else f"has {layer.out_features} outputs, not the model's {model}"
        serves = given is None and not idle and one.use not in ("outputs", "both")  # with its name it is taken
        itself = f"{one.itself.format(facts.head)}; otherwise " if one.itself and serves else ""
        end = one.named.format(better[-1]) if better else f"{itself}{one.without}"
        raise FedscopeError(f"{one.place} needs to know the model's head, and {what} {why}; {end}")


#: to those who take a layer of other outputs where it is named
NAME_IT = "name it if it is the head: --set model.head={}"


def in_training(config: Config) -> list[Asking]:
    """Return what asks for a head in a training."""
    client, average = config.client, config.average
    asking = []
    if client.needs_head:
        without = "name another layer with --set model.head=NAME, or give --client sgd"
        asking.append(Asking(f"client.method = {method_name(client)!r}", client.head_use, without, itself=NAME_IT))
    if average.needs_head:
        place, without = f"average.method = {method_name(average)!r}", "give --set average.parts=all"
        asking.append(Asking(place, "numbers", without, itself=NAME_IT))
    if client.local_optimiser == "muon":
        asking.append(Asking("client.optimiser = 'muon'", "none", ""))
    return asking


def seen_in_pass(module: nn.Module, samples: Samples) -> Seen | None:
    """Call a copy of a module on two samples, in training mode; None where it fails, or does not return a tensor."""
    bench = FlatModule(module)
    own = bench.module.train()
    linear = {name: layer for name, layer in own.named_modules() if isinstance(layer, nn.Linear)}
    called: list[str] = []

    def note(name: str) -> Any:
        return lambda *_: called.append(name)

    handles = [layer.register_forward_pre_hook(note(name)) for name, layer in linear.items()]
    try:
        with forked():
            outputs = own(bench.prepare(samples.x[:2]))
        if not isinstance(outputs, Tensor):
            return None
        weights = {name: layer.weight for name, layer in linear.items() if layer.weight.requires_grad}
        found = torch.autograd.grad(outputs.sum(), list(weights.values()), allow_unused=True) if weights else ()
    except Exception:  # whatever a module of the user's own raises
        return None
    finally:
        for handle in handles:
            handle.remove()
    used = frozenset(name for name, gradient in zip(weights, found, strict=True) if gradient is not None)
    return Seen(tuple(called), used, tuple(outputs.shape[1:]))
