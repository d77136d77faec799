"""FedGen, a generator of features: Zhuangdi Zhu, Junyuan Hong, Jiayu Zhou, "Data-Free Knowledge Distillation for
Heterogeneous Federated Learning", ICML 2021."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ....checkpoints import FedscopeError, Weights
from ....evaluation.device import run_in_workers
from ....evaluation.taken_logits import logits_of
from ...local.device_batches import grouped
from ...local.local_training import LocalTask, LocalUpdate, batches_an_epoch, local_sgd
from ...local.to_device import send
from ...local.worker_model import as_float32, head_layer
from ...rng import torch_generator
from ...settings.settings import setting
from ..base import ClientMethod, Exchange, MethodInfo, State

if TYPE_CHECKING:
    from ...config.config import Config
    from ...models.model_info import ModelInfo


@dataclass(frozen=True)
class FedGen(ClientMethod):
    """The server learns a generator of features from the clients' heads; clients train their heads with it.

    Client: loss = L + γ_t (α CE(head(G(z′, y′)), y′) + β KL(softmax head(G(z, y)) ‖ softmax logits)), γ_t =
    decay^(t−1), on a mini-batch x, y of n samples: L the task's mean loss (a criterion's weights of classes and
    smoothing are in it, and in no other term), y′ [n] uniform over the classes, noise z, z′ [n, noise]; all other means
    over n. The left side of KL is a constant target, and so are the features G(·) [n, width]: the first term reaches
    the head alone. The training loss that is recorded is L.

    Server, after each round: ``generator_steps`` of Adam at rate generator_lr decay^(t−1) on
    min_G mean over y, z of Σ_k (n_{k,y} / Σ_k n_{k,y}) CE(head_k(G(z, y)), y) + diversity · sameness, over the clients
    k of the cohort, n_{k,y} their samples of class y; y is drawn from the cohort's label counts. sameness =
    exp(−mean over pairs of |z_i − z_j|²/noise · |G_i − G_j|₁/width) falls as the features follow the noise.
    G is linear (noise + one-hot y → hidden), batch norm, ReLU, linear (→ width), see
    :func:`generate`.

    This is a hybrid of three sources, which differ: the loss and z are the paper's; the schedule, the weights and the
    first round are those of the authors' code; the generator's size and rate are those of a widely used implementation
    (PFLlib). Chosen, where the paper is silent or its code differs:

    - in the method's first round clients train as SGD, since the generator that they are sent is untrained (as in the
      authors' code); a count of its batches is sent with it.
    - z is standard normal (the paper; the code draws it uniform), and clients use G's running statistics (the code).
    - the weights n_{k,y}/Σ n_{k,y}, sameness with weight 1, the direction of KL, 50 steps of 32 and the decay a round
      of α, β and the rate are the code's; there are as many generated samples as real ones.
    - Adam begins anew each round, since what the server keeps is what it sends. There is no weight decay on G.
    - the label counts count as known to the server; they are 1 number a class, sent once.

    noise, hidden and generator_lr are PFLlib's; the authors' code has 32, 256 and 3e-4 on MNIST. With α = 10
    a head's steps are eleven times as long: at the common rate of 0.05 and momentum 0.9 training on the digits ends at
    chance, so gradients are clipped at norm 10 (chosen; the authors' rate is 0.01).
    The server's part takes about 0.4 s a round on one core, whatever the model's size.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedGen",
        "Zhu et al., data-free distillation, ICML 2021",
        "loss + γ_t (α CE(head(G(y′)), y′) + β KL(softmax head(G(y)) ‖ softmax logits)), γ_t = 0.98^(t−1)",
        keeps="generator G, server",
        down="G (the generator)",
    )
    any_optimiser: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True
    head_use: ClassVar[Literal["numbers", "inputs", "outputs", "both"]] = "outputs"
    needs_classes: ClassVar[bool] = True
    check_with: ClassVar[Mapping[str, Any]] = {"generator_steps": 2, "hidden": 4, "noise": 3}

    clip: float = setting(10.0, "largest norm of the mini-batch gradient; 0: no clipping", least=0)
    alpha: float = setting(10.0, "α: weight of the generated samples in the head's loss", least=0)
    beta: float = setting(10.0, "β: weight of the distillation towards the head's outputs on them", least=0)
    decay: float = setting(0.98, "factor per round of α, β and generator_lr", above=0, most=1)
    noise: int = setting(512, "size of the noise vector of the generator", least=1)
    hidden: int = setting(512, "width of the generator's hidden layer", least=1)
    generator_lr: float = setting(0.005, "learning rate of Adam for the generator, in round 1", above=0)
    generator_steps: int = setting(50, "generator steps per round", least=1)
    generator_batch: int = setting(32, "generated samples per generator step", least=2)
    diversity: float = setting(1.0, "weight of the term that keeps generated features different; 0: none", least=0)

    def resolve(self, config: Config) -> Self:
        """Nothing to fill in.

        Raises:
            FedscopeError: both weights are 0, which would leave the generator unused.
        """
        if not self.alpha and not self.beta:
            raise FedscopeError(
                "client.alpha = 0 and client.beta = 0 together would switch the method off; give one of them a number "
                "greater than 0, or --client sgd"
            )
        return self

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """An untrained generator, by name."""
        # Draw 0: clients' draws of the same purpose count from 1.
        draws = torch_generator(facts.seed, "generator", draw=0)
        dtype = torch.from_numpy(np.empty(0, facts.layout.dtype)).dtype
        network = draw_network(self.noise, self.hidden, facts.classes, facts.width, draws, dtype)
        return {name: value.numpy() for name, value in network.items()}

    def train(self, task: LocalTask) -> LocalUpdate:
        if not task.sent["norm.batches"]:
            return local_sgd(task, self)
        network = {name: task.place.tensor(value) for name, value in task.sent.items()}
        classes, dtype = task.facts.classes, network["out.bias"].dtype
        # Its own, since a branch may go on with a generator that was drawn under other settings.
        size = network["hidden.weight"].shape[1] - classes
        draws = torch_generator(task.seed, "generator", round=task.round, client=task.client, draw=task.draw)
        factor = self.decay ** (task.round - 1)
        drawn = self._drawn(task, draws, classes, size, dtype)

        def objective(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            n, logits, rows = len(y), logits_of(module(x)), task.labelled(y)
            wanted, noise = next(drawn)
            with torch.no_grad():
                # of a class that is left out again where a label is ignored
                made = generate(network, noise, torch.cat((y.clamp(min=0), wanted)))
            answers = head_layer(module, task.facts.head)(made)
            target = functional.log_softmax(answers[:n].detach()[rows], dim=1)
            own = functional.log_softmax(logits[rows], dim=1)
            taught = functional.kl_div(own, target, reduction="batchmean", log_target=True) if len(own) else own.sum()
            asked = functional.cross_entropy(as_float32(answers[n:]), wanted)
            loss = task.loss_of(logits, y)
            return loss + factor * (self.alpha * asked + self.beta * taught), loss

        return local_sgd(task, self, objective=objective)

    def _drawn(
        self, task: LocalTask, draws: torch.Generator, classes: int, size: int, dtype: torch.dtype
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield y′ [n] and z, z′ [2 n, noise] of each step: drawn on the processor, so that a device trains with the
        same numbers, and sent to it for many steps at once."""

        def step(n: int) -> tuple[Tensor, Tensor]:
            wanted = torch.randint(classes, (n,), generator=draws)
            return wanted, torch.randn(2 * n, size, generator=draws, dtype=dtype)

        sizes, device = batches_an_epoch(task, self) * task.pace.epochs, task.y.device
        if device.type == "cpu":
            yield from map(step, sizes)
            return
        for group in grouped(sizes, 2 * size * dtype.itemsize):
            wanted, noise = (send(torch.cat(parts), device) for parts in zip(*map(step, group), strict=True))
            yield from zip(torch.split(wanted, group), torch.split(noise, [2 * n for n in group]), strict=True)

    def share(self, sent: State, exchange: Exchange) -> State:
        """The generator, trained on with the heads that came back; on the CPU, in one thread."""
        facts, cohort = exchange.facts, exchange.cohort
        entries = {entry.name: entry for entry in facts.layout.parameters}

        def rows(name: str) -> Tensor:
            values = np.asarray(exchange.clients.parameters[:, facts.layout.slices[name]])
            return torch.tensor(values.reshape(-1, *entries[name].shape))

        bias = f"{facts.head}.bias"
        heads = Heads(
            rows(f"{facts.head}.weight"),
            rows(bias) if bias in entries else None,
            torch.tensor(cohort.label_counts, dtype=torch.float64),
        )
        draws = torch_generator(facts.seed, "generator", round=cohort.round, draw=0)
        lr = self.generator_lr * self.decay ** (cohort.round - 1)

        def work(network: dict[str, Tensor], context: object, stop: object) -> dict[str, Tensor]:
            return train_network(
                network,
                heads,
                steps=self.generator_steps,
                batch=self.generator_batch,
                lr=lr,
                diversity=self.diversity,
                draws=draws,
            )

        # A worker has one thread whatever the machine has, so sums of floats come in the same order.
        network = {name: torch.tensor(value) for name, value in sent.items()}
        (trained,) = run_in_workers(work, [network], workers=1)
        return {name: value.numpy() for name, value in trained.items()}


# A network is its tensors by name: it is drawn, sent, recorded and resumed as arrays. Names have no slash, which would
# make a group of them in a file.
Network = Mapping[str, Tensor]

#: not learnt: the norm layer's running mean and variance, and how many batches they have seen
_STATISTICS = ("norm.mean", "norm.variance", "norm.batches")


def draw_network(
    noise: int, hidden: int, classes: int, width: int, draws: torch.Generator, dtype: torch.dtype
) -> dict[str, Tensor]:
    """An untrained network: uniform within ±1/√inputs, as torch draws its linear layers, unit norm layer."""
    inputs = noise + classes

    def uniform(shape: tuple[int, ...], fan_in: int) -> Tensor:
        return (2 * torch.rand(shape, generator=draws, dtype=torch.float64) - 1).div(fan_in**0.5).to(dtype)

    return {
        "hidden.weight": uniform((hidden, inputs), inputs),
        "hidden.bias": uniform((hidden,), inputs),
        "norm.weight": torch.ones(hidden, dtype=dtype),
        "norm.bias": torch.zeros(hidden, dtype=dtype),
        "norm.mean": torch.zeros(hidden, dtype=dtype),
        "norm.variance": torch.ones(hidden, dtype=dtype),
        "norm.batches": torch.zeros((), dtype=torch.int64),
        "out.weight": uniform((width, hidden), hidden),
        "out.bias": uniform((width,), hidden),
    }


def generate(network: Network, noise: Tensor, y: Tensor, *, training: bool = False) -> Tensor:
    """Features [n, width] of classes y [n] from noise [n, noise]: linear, batch norm, ReLU, linear.

    Args:
        training: normalise over the batch and update the running statistics, in place; otherwise normalise with those.
    """
    classes = network["hidden.weight"].shape[1] - noise.shape[1]
    inputs = torch.cat((noise, functional.one_hot(y, classes).to(noise.dtype)), dim=1)
    z = functional.linear(inputs, network["hidden.weight"], network["hidden.bias"])
    z = functional.batch_norm(
        z,
        network["norm.mean"],
        network["norm.variance"],
        network["norm.weight"],
        network["norm.bias"],
        training=training,
    )
    return functional.linear(z.relu(), network["out.weight"], network["out.bias"])


@dataclass(frozen=True)
class Heads:
    """The heads of K clients, and how much each is asked about each class.

    Attributes:
        weight: [K, classes, width]; bias: [K, classes], or None.
        label_counts: [K, classes], float.
    """

    weight: Tensor
    bias: Tensor | None
    label_counts: Tensor

    def loss(self, features: Tensor, y: Tensor) -> Tensor:
        """Mean over the samples of Σ_k (n_{k,y} / Σ_k n_{k,y}) CE(head_k(features), y)."""
        logits = torch.einsum("nf,kcf->nkc", features, self.weight)
        if self.bias is not None:
            logits = logits + self.bias
        surprise = -functional.log_softmax(logits, dim=2)[torch.arange(len(y)), :, y]
        counts = self.label_counts[:, y].T
        share = counts / counts.sum(1, keepdim=True)
        return (share.to(surprise.dtype) * surprise).sum(1).mean()


def sameness(noise: Tensor, features: Tensor) -> Tensor:
    """exp(−mean over pairs of mean-square noise distance times mean absolute feature distance): 1 where the features
    ignore the noise, less the more they follow it."""
    apart = (noise[:, None] - noise).square().mean(2)
    moved = (features[:, None] - features).abs().mean(2)
    return (-apart * moved).mean().exp()


def train_network(
    network: Network, heads: Heads, *, steps: int, batch: int, lr: float, diversity: float, draws: torch.Generator
) -> dict[str, Tensor]:
    """A network further trained: ``steps`` of Adam (β 0.9, 0.999) on heads.loss + diversity · sameness, given ``lr``.

    Each step draws ``batch`` classes from the clients' label counts, then their noise, standard normal.
    """
    trained = {name: value.clone() for name, value in network.items()}
    learnt = [value.requires_grad_() for name, value in trained.items() if name not in _STATISTICS]
    moments = [(torch.zeros_like(value), torch.zeros_like(value)) for value in learnt]
    popularity = heads.label_counts.sum(0)
    size, dtype = network["hidden.weight"].shape[1] - len(popularity), network["out.bias"].dtype
    for k in range(1, steps + 1):
        y = torch.multinomial(popularity, batch, replacement=True, generator=draws)
        noise = torch.randn(batch, size, generator=draws, dtype=dtype)
        features = generate(trained, noise, y, training=True)
        trained["norm.batches"] += 1
        loss = heads.loss(features, y)
        if diversity:
            loss = loss + diversity * sameness(noise, features)
        gradients = torch.autograd.grad(loss, learnt)
        # Adam in full: the first use of torch's own loads its compiler, which takes seconds.
        with torch.no_grad():
            for value, (m, v), g in zip(learnt, moments, gradients, strict=True):
                m.mul_(0.9).add_(g, alpha=0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                value.sub_(lr * (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)).sqrt() + 1e-8))
    return {name: value.detach() for name, value in trained.items()}


PROVIDES = FedGen
