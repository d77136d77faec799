"""FedGen, a generator of features: Zhuangdi Zhu, Junyuan Hong, Jiayu Zhou, "Data-Free Knowledge Distillation for
Heterogeneous Federated Learning", ICML 2021."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ...checkpoints import FedscopeError, Weights
from ..anatomy import Facts
from ..methods import About, ClientMethod, Exchange, State
from ..settings import setting

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..config import Config
    from ..local import LocalTask, LocalUpdate


@dataclass(frozen=True)
class FedGen(ClientMethod):
    """The server learns from the clients' heads a generator of features, which clients train their own heads with.

    Client: loss = CE + γ_t (α CE(head(G(z′, y′)), y′) + β KL(softmax head(G(z, y)) ‖ softmax logits)), γ_t =
    decay^(t−1), on a mini-batch x, y of n samples: y′ [n] uniform over the classes, noise z, z′ [n, noise]; all means
    over n. The left side of KL is a constant target, and so are the features G(·) [n, width]: the first term reaches
    the head alone.

    Server, after each round: ``generator_steps`` of Adam at rate generator_lr decay^(t−1) on
    min_G mean over y, z of Σ_k (n_{k,y} / Σ_k n_{k,y}) CE(head_k(G(z, y)), y) + diversity · sameness, over the clients
    k of the cohort, n_{k,y} their samples of class y; y is drawn from the cohort's label counts. sameness =
    exp(−mean over pairs of |z_i − z_j|²/noise · |G_i − G_j|₁/width) falls as the features follow the noise.
    G is linear (noise + one-hot y → hidden), batch norm, ReLU, linear (→ width), see
    :mod:`fedscope.training.shared.feature_generator`.

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

    about: ClassVar[About] = About(
        "FedGen",
        "Zhu et al., data-free distillation, ICML 2021",
        "loss + γ_t (α CE(head(G(y′)), y′) + β KL(softmax head(G(y)) ‖ softmax logits)), γ_t = 0.98^(t−1)",
        keeps="generator G, server",
        down="G (the generator)",
    )
    needs_head: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    clip: float = setting(10.0, "greatest norm of the mini-batch gradient; 0 clips nothing", least=0)
    alpha: float = setting(10.0, "α: weight of the generated samples in the head's loss", least=0)
    beta: float = setting(10.0, "β: weight of the distillation towards the head's answers to them", least=0)
    decay: float = setting(0.98, "factor a round of α, β and generator_lr", above=0, most=1)
    noise: int = setting(512, "numbers of noise that the generator takes", least=1)
    hidden: int = setting(512, "width of the generator's hidden layer", least=1)
    generator_lr: float = setting(0.005, "learning rate of Adam for the generator, in round 1", above=0)
    generator_steps: int = setting(50, "steps of the generator a round", least=1)
    generator_batch: int = setting(32, "generated samples a step of the generator", least=2)
    diversity: float = setting(1.0, "weight of the term that keeps generated features apart; 0: none", least=0)

    def settle(self, config: Config) -> Self:
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

    def begin(self, w: Weights, facts: Facts) -> State:
        """An untrained generator, by name."""
        import numpy as np
        import torch

        from ..randomness import torch_generator
        from ..shared.feature_generator import draw_network

        # Draw 0: clients' draws of the same purpose count from 1.
        draws = torch_generator(facts.seed, "generator", draw=0)
        dtype = torch.from_numpy(np.empty(0, facts.layout.dtype)).dtype
        network = draw_network(self.noise, self.hidden, facts.classes, facts.width, draws, dtype)
        return {name: value.numpy() for name, value in network.items()}

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples."""
        import torch
        from torch.nn import functional

        from ..bench import head_layer
        from ..local import local_sgd
        from ..randomness import torch_generator
        from ..shared.feature_generator import generate

        if not task.sent["norm.batches"]:
            return local_sgd(task, self)
        network = {name: task.place.tensor(value) for name, value in task.sent.items()}
        classes, dtype = task.facts.classes, network["out.bias"].dtype
        # Its own, since a branch may go on with a generator that was drawn under other settings.
        size = network["hidden.weight"].shape[1] - classes
        draws = torch_generator(task.seed, "generator", round=task.round, client=task.client, draw=task.draw)
        factor = self.decay ** (task.round - 1)

        def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            n, logits = len(y), module(x)
            # Drawn where the mini-batches are, so that a device trains with the same numbers.
            wanted = torch.randint(classes, (n,), generator=draws).to(y.device)
            noise = torch.randn(2 * n, size, generator=draws, dtype=dtype).to(y.device)
            with torch.no_grad():
                made = generate(network, noise, torch.cat((y, wanted)))
            answers = head_layer(module, task.facts.head)(made)
            target = functional.log_softmax(answers[:n].detach(), dim=1)
            own = functional.log_softmax(logits, dim=1)
            taught = functional.kl_div(own, target, reduction="batchmean", log_target=True)
            asked = functional.cross_entropy(answers[n:], wanted)
            return functional.cross_entropy(logits, y) + factor * (self.alpha * asked + self.beta * taught)

        return local_sgd(task, self, objective=objective)

    def share(self, sent: State, exchange: Exchange) -> State:
        """The generator, trained on with the heads that came back; on the CPU, in one thread."""
        import torch

        from ...landscape import run_in_workers
        from ..randomness import torch_generator
        from ..shared.feature_generator import Heads, train_network

        facts, cohort = exchange.facts, exchange.cohort
        arrays = facts.layout.views(exchange.clients.parameters)
        bias = arrays.get(f"{facts.head}.bias")
        heads = Heads(
            torch.tensor(arrays[f"{facts.head}.weight"]),
            None if bias is None else torch.tensor(bias),
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


PROVIDES = FedGen
