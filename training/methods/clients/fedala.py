"""FedALA: Jianqing Zhang, Yang Hua, Hao Wang, Tao Song, Zhengui Xue, Ruhui Ma, Haibing Guan, "FedALA: Adaptive Local
Aggregation for Personalized Federated Learning", AAAI 2023."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from ....checkpoints import FedscopeError, Layout, Weights
from ...local.local_training import LocalTask, LocalUpdate, Stopped, batches_an_epoch, local_sgd
from ...local.loss_sum import LossSum
from ...rng import generator
from ...settings.settings import setting
from ..base import ClientMethod, MethodInfo, State

if TYPE_CHECKING:
    from ...models.model_info import ModelInfo


@dataclass(frozen=True)
class FedALA(ClientMethod):
    """Each client starts from a mixture of its own last model and the model sent; it learns the mixing weights.

    Lower layers start as sent. The top ``layers`` start from θ_old + (w − θ_old)⊙A, elementwise, with θ_old what the
    client trained at its last participation and A in [0, 1]: 0 keeps the client's own, 1 takes what was sent. A layer
    is a module with its weight and bias, counted from the end of the layout (**chosen**; the authors' code counts
    tensors). Plain SGD follows, and θ goes back as ever.

    A [parameters of those layers] is 1 at first and kept by the client. It is learnt before each training on a random
    ``portion`` of the client's samples, in mini-batches: A ← clip(A − η_A ∂L/∂A, 0, 1) with
    ∂L/∂A = ∂L/∂θ ⊙ (w − θ_old) at the mixture, where L is the cross-entropy alone, without weight decay, clip or
    momentum. The first time until it converges, that is until its loss's standard deviation over the last ``window``
    epochs is below ``threshold``, in ``most_epochs`` at most; one epoch at each later time. A client's first
    participation starts from w and is SGD's, bit for bit.

    **Chosen**: the sample is ⌈s n⌉ large and drawn without replacement, its batches keep their order over the epochs,
    and the last one is used though it be small; an epoch's loss is the mean over its samples (in the authors' code its
    last batch's), convergence takes one epoch more than the window holds (theirs, too), and an end is forced (theirs
    has none); images are not augmented; buffers start as sent. The client's own model is θ, what it has trained.

    Zhang et al., AAAI 2023. η_A = 0.01 is what the authors' README gives for the paper's experiments; their code has
    another default. Threshold, window and portion are those of the authors' code.

    Raises:
        FedscopeError: more layers than the model has.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedALA",
        "Zhang et al., FedALA, AAAI 2023",
        "top layers start from θ_old + (w − θ_old)⊙A, A ← clip(A − η_A ∂L/∂A, 0, 1)",
        keeps="θ_old and A by client",
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    personal: ClassVar[bool] = True
    own_model: ClassVar[str] = "local"
    own_start: ClassVar[bool] = True
    vectors_kept: ClassVar[int] = 1
    check_with: ClassVar[Mapping[str, Any]] = {"most_epochs": 5}

    layers: int = setting(1, "number of layers, from the top, that are mixed", least=1)
    portion: float = setting(0.8, "s: share of the client's samples used to learn A", above=0, most=1)
    mixing_lr: float = setting(0.01, "η_A: learning rate of A", above=0, off="--client sgd")
    threshold: float = setting(0.1, "A has converged when the last losses deviate less than this", above=0)
    window: int = setting(10, "number of last epochs whose losses count for that deviation", least=2)
    most_epochs: int = setting(100, "most epochs for learning A the first time", least=1)

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """Nothing is sent beside the model."""
        self.mixed(facts.layout)
        return {}

    def mixed(self, layout: Layout) -> slice:
        """Where the top layers lie in the flat vector: they are its end.

        Raises:
            FedscopeError: see the class.
        """
        modules = list(dict.fromkeys(entry.name.rpartition(".")[0] for entry in layout.parameters))
        if self.layers > len(modules):
            raise FedscopeError(
                f"client.layers = {self.layers}, but the model has {len(modules)} layers with parameters; give at most "
                f"that many, as in --set client.layers={len(modules)}"
            )
        first = modules[-self.layers]
        begins = min(where.start for name, where in layout.slices.items() if name.rpartition(".")[0] == first)
        return slice(begins, layout.size)

    def train(self, task: LocalTask) -> LocalUpdate:
        """Learn A, start from the mixture, then E epochs over the client's samples."""
        layout = task.start.layout
        where = self.mixed(layout)

        def begun(own: LocalTask) -> tuple[np.ndarray, Weights, np.ndarray]:
            a = np.ones(where.stop - where.start, layout.dtype)
            if not own.state:
                return a, own.start, np.array(0)
            old, kept, before = (own.state[name] for name in ("local", "weights", "learnt"))
            assert isinstance(old, Weights)
            assert not isinstance(kept, Weights)
            # A of another size is that of a branch's history, which mixed other layers
            first = bool(before == 0 or kept.shape != a.shape)
            return *self.learn(own, old, a if first else kept, first=first), np.array(1)

        a, start, learnt = task.each(begun)
        update = local_sgd(replace(task, start=start), self)
        return replace(update, state={"local": update.weights, "weights": a, "learnt": learnt})

    def learn(self, task: LocalTask, old: Weights, a: np.ndarray, *, first: bool) -> tuple[np.ndarray, Weights]:
        """A after learning from ``a``, and the mixture that it makes of ``old`` and the model sent."""
        bench, where = task.place, self.mixed(task.start.layout)
        # masks of its own: passes 0 and 1 are local training's and the full gradient's
        bench.begin(task, pass_=2)
        draw = generator(task.seed, "personal", round=task.round, client=task.client, draw=task.draw)
        some = draw.permutation(len(task.indices))[: ceil(self.portion * len(task.indices))]
        sample = replace(task, indices=task.indices[some])
        blocks = torch.split(torch.from_numpy(sample.indices).to(task.x.device), batches_an_epoch(sample, self))

        own, sent = bench.tensor(old.parameters[where]), bench.w[where].clone()
        gap, weights = sent - own, bench.tensor(a).clone()
        # lerp, because own + (sent − own) is not sent to the last bit
        bench.w[where] = torch.lerp(own, sent, weights)
        count = task.facts.task.count
        whole = sum(count(task.y[block]) for block in blocks) or 1  # where nothing counts each loss is 0
        losses: list[float] = []
        while len(losses) < (self.most_epochs if first else 1):
            total = LossSum()
            for block in blocks:
                if task.stop is not None and task.stop.is_set():
                    raise Stopped
                total.add(bench.loss(task.objective, task.x[block], task.y[block]), count(task.y[block]))
                weights.sub_(bench.g[where] * gap, alpha=self.mixing_lr).clamp_(0, 1)
                bench.w[where] = torch.lerp(own, sent, weights)
            losses.append(total.total() / whole)
            if len(losses) > self.window and np.std(losses[-self.window :]) < self.threshold:
                break
        mixture = Weights(task.start.layout, bench.w.cpu().numpy().copy(), task.start.buffers)
        return weights.cpu().numpy(), mixture


PROVIDES = FedALA
