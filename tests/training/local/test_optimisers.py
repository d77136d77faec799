"""Local optimisers: step for step those of ``torch.optim``, with every engine, and refused where they make no sense."""

from __future__ import annotations

import re
import warnings
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout
from fedscope.training import Config, merge, preset
from fedscope.training.build import initial_model
from fedscope.training.import_string import ImportString
from fedscope.training.local.local_training import LocalTask, batches, local_sgd
from fedscope.training.local.optimiser_choice import refuse_optimiser, vectors_kept, warn_of_rate
from fedscope.training.local.optimisers import hidden_matrices, newton_schulz, refuse_useless
from fedscope.training.local.vectorized_model import VectorizedModel
from fedscope.training.local.vectorized_training import VectorizedTask, updates_of
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import ClientMethod, LocalSchedule
from fedscope.training.methods.clients.fedprox import FedProx
from fedscope.training.methods.clients.fedswa import FedSWA
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo
from fedscope.training.settings.code_kinds import KINDS
from fedscope.training.settings.own_code import OwnCode
from fedscope.training.settings.registry import find, names
from fedscope.training.user_code.resolve import handed_code

ADAM = OwnCode.of("torch.optim:Adam", torch.optim.Adam)
#: built-in client methods that take any optimiser: their own terms change the objective or the gradient alone
ANY = {"ditto", "fedacg", "fedala", "fedasam", "feddyn", "fedfa", "fedgen"}
ANY |= {"fedntd", "fedprox", "fedsam", "fedswa", "moon", "sgd"}


def conv_task() -> LocalTask:
    """A client with a small convolutional network in float64, whose kernels are wide and whose matrices are tall and
    wide."""
    torch.manual_seed(3)
    layers = nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 7), nn.Linear(7, 3)
    module = nn.Sequential(*layers).double()
    x, y = torch.randn(13, 2, 4, 4, dtype=torch.float64), torch.randint(0, 3, (13,))
    facts = ModelInfo(Layout.of(module), classes=3, clients=1, head="6")
    start, bench = initial_model(module), TrainableModel(module)
    return LocalTask(2, 0, x, y, np.arange(13), start, LocalSchedule(0.01, 3), 0, facts, bench=bench)


def by_torch(task: Any, method: ClientMethod, make: Any, change: Any = None, rounds: int = 1) -> np.ndarray:
    """The parameters after a task's mini-batches with optimisers of ``torch.optim``; ``change`` changes gradients."""
    module = deepcopy(task.place.module)
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in task.start.arrays().items()})
    optimisers = make(module)
    for round in range(rounds):
        for x, y in batches(replace(task, round=task.round + round), method):
            for optimiser in optimisers:
                optimiser.zero_grad()
            functional.cross_entropy(module(x), y).backward()
            if change is not None:
                change(module)
            for optimiser in optimisers:
                optimiser.step()
    return initial_model(module).parameters


@pytest.mark.parametrize("weight_decay", [0.0, 0.2])
@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_adamw_steps_as_torchs(small: Any, weight_decay: float, clip: float, close: Any) -> None:
    """Decoupled decay, in no gradient that is clipped; bias corrections of every step; no momentum of SGD's."""
    task = small.task(pace=LocalSchedule(0.03, 4))
    method = SGD(batch=4, weight_decay=weight_decay, clip=clip, optimiser="adamw")
    update = local_sgd(task, method)

    def make(module: nn.Module) -> Any:
        return [torch.optim.AdamW(module.parameters(), lr=0.03, weight_decay=weight_decay)]

    def clipped(module: nn.Module) -> None:
        if clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)

    expected = by_torch(task, method, make, clipped)
    close(update.weights.parameters, expected, 1e-6)
    close(update.weights.parameters - task.start.parameters, expected - task.start.parameters, 1e-5 if clip else 1e-9)
    assert np.isnan(update.reach), "no sum of rates says how far a gradient carries it"
    assert update.optimiser == {}


def test_corrections_come_before_the_step_and_rates_of_steps_are_taken(small: Any, close: Any) -> None:
    task = small.task(pace=LocalSchedule(0.03, 3))
    prox = FedProx(batch=4, weight_decay=0.1, mu=0.5, optimiser="adamw")
    start = [torch.from_numpy(value) for value in task.start.arrays().values()]

    def make(module: nn.Module) -> Any:
        return [torch.optim.AdamW(module.parameters(), lr=0.03, weight_decay=0.1)]

    def pull(module: nn.Module) -> None:
        for parameter, at in zip(module.parameters(), start, strict=True):
            assert parameter.grad is not None
            parameter.grad += 0.5 * (parameter.detach() - at)

    close(prox.train(task).weights.parameters, by_torch(task, prox, make, pull), 1e-9)

    falling = FedSWA(batch=4, weight_decay=0.1, lr_floor=0.2, optimiser="adamw")
    steps = iter(range(9))

    def fallen(module: nn.Module) -> None:
        optimiser.param_groups[0]["lr"] = 0.03 * (1 - 0.8 * next(steps) / 9)

    made: list[Any] = []

    def keep(module: nn.Module) -> Any:
        made.extend(make(module))
        return made

    class Later:
        def __getattr__(self, name: str) -> Any:
            return getattr(made[0], name)

    optimiser: Any = Later()
    close(falling.train(task).weights.parameters, by_torch(task, falling, keep, fallen), 1e-9)


@pytest.mark.parametrize("weight_decay", [0.0, 0.2])
def test_muon_steps_as_torchs(weight_decay: float, close: Any) -> None:
    """Matrices of hidden layers and kernels by Muon; the head, and what has one dimension, by AdamW."""
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    task = conv_task()
    method = SGD(batch=4, weight_decay=weight_decay, optimiser="muon")
    flat: list[tuple[Any, nn.Parameter]] = []

    def make(module: Any) -> Any:
        kernels = nn.Parameter(module[0].weight.detach().view(4, 18))  # torch's takes matrices alone
        kernels.grad = torch.zeros_like(kernels)
        flat.append((module[0].weight, kernels))
        matrices = [kernels, module[3].weight, module[5].weight]
        rest = [p for p in module.parameters() if p.dim() == 1] + [module[6].weight]
        return [
            torch.optim.Muon(matrices, lr=0.01, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=0.01, weight_decay=weight_decay),
        ]

    def reshape(module: Any) -> None:
        parameter, kernels = flat[0]
        assert parameter.grad is not None
        kernels.grad = parameter.grad.view(4, 18).clone()
        parameter.grad = None  # no optimiser has it

    found, expected = local_sgd(task, method).weights.parameters, by_torch(task, method, make, reshape)
    close(found, expected, 1e-6)
    close(found - task.start.parameters, expected - task.start.parameters, 1e-6)


def test_muon_orthogonalises() -> None:
    """All singular values of what it steps along are about 1, whatever the gradient's."""
    torch.manual_seed(0)
    for shape in ((6, 6), (4, 30), (30, 4)):
        values = torch.linalg.svdvals(newton_schulz(torch.randn(shape) * torch.rand(shape[1])).float())
        assert values.min() > 0.4
        assert values.max() < 1.4


def test_muon_takes_hidden_matrices_alone() -> None:
    module = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3), nn.Linear(3, 2))
    assert hidden_matrices(module, "2") == {"1.weight": (3, 4)}
    assert hidden_matrices(module, None) == {"1.weight": (3, 4), "2.weight": (2, 3)}
    with pytest.raises(FedscopeError, match=r"'muon' steps the matrices of hidden layers, and small has none; give"):
        refuse_useless(SGD(optimiser="muon"), nn.Sequential(nn.Linear(4, 2)), "0", "small")


def test_an_optimiser_of_ones_own_steps_along_the_same_gradient(small: Any, close: Any) -> None:
    """Weight decay in the gradient and clipped with it, and the round's rate in place of its own."""
    task = small.task(pace=LocalSchedule(0.03, 4))
    method = SGD(batch=4, weight_decay=0.2, clip=0.8, optimiser=ADAM)

    def make(module: nn.Module) -> Any:
        return [torch.optim.Adam(module.parameters(), lr=0.03)]

    def decayed(module: nn.Module) -> None:
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter.grad += 0.2 * parameter.detach()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.8)

    close(local_sgd(task, method).weights.parameters, by_torch(task, method, make, decayed), 1e-5)


@pytest.mark.parametrize(
    ("given", "round"), [((0.5, 5.0), (0.03, 0.3)), ((0.5, 0.0), (0.03, 0.0)), ((0.0, 0.5), (0.0, 0.03))]
)
def test_groups_keep_the_ratio_of_their_rates(
    small: Any, given: tuple[float, float], round: tuple[float, float], close: Any
) -> None:
    """A rate of 0 stays one: these parameters are frozen."""

    def factory(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{"params": parameters[:2], "lr": given[0]}, {"params": parameters[2:], "lr": given[1]}]
        return torch.optim.SGD(groups)

    task = small.task(pace=LocalSchedule(0.03, 2))
    method = SGD(batch=4, weight_decay=0.0, optimiser=OwnCode.of("mine:factory", factory))

    def make(module: nn.Module) -> Any:
        own = list(module.parameters())
        return [torch.optim.SGD([{"params": own[:2], "lr": round[0]}, {"params": own[2:], "lr": round[1]}])]

    close(local_sgd(task, method).weights.parameters, by_torch(task, method, make), 1e-12)


@pytest.mark.parametrize("optimiser", ["adamw", "muon", ADAM])
def test_kept_state_goes_on_where_it_was(small: Any, optimiser: str, close: Any) -> None:
    """Two rounds of a client that starts where it ended are one training with one optimiser; fresh ones are not."""
    task = small.task(pace=LocalSchedule(0.03, 2))
    ends = {}
    for rule in ("kept", "fresh"):
        method = SGD(batch=4, weight_decay=0.0, optimiser=optimiser, optimiser_state=rule)
        first = local_sgd(task, method)
        assert len(first.optimiser) == (3 if rule == "kept" else 0)
        again = replace(task, round=task.round + 1, start=first.weights, state=first.optimiser)
        ends[rule] = local_sgd(again, method).weights.parameters

    def make(module: Any) -> Any:
        if optimiser == "muon":
            return [
                torch.optim.Muon([module[0].weight], lr=0.03, weight_decay=0, adjust_lr_fn="match_rms_adamw"),
                torch.optim.AdamW([module[0].bias, *module[2].parameters()], lr=0.03, weight_decay=0),
            ]
        return [torch.optim.Adam(module.parameters(), lr=0.03)]  # AdamW without decay

    if optimiser != "muon" or hasattr(torch.optim, "Muon"):
        close(ends["kept"], by_torch(task, SGD(batch=4), make, rounds=2), 1e-6)
    assert np.linalg.norm(ends["fresh"] - ends["kept"]) > 0.01 * np.linalg.norm(ends["kept"])


def test_the_state_of_another_optimiser_is_not_gone_on_with(small: Any) -> None:
    task = small.task(pace=LocalSchedule(0.03, 2))
    muon = SGD(batch=4, optimiser="muon", optimiser_state="kept")
    adamw = SGD(batch=4, optimiser="adamw", optimiser_state="kept")
    left = local_sgd(task, muon).optimiser
    assert sorted(left) == ["optimiser.muon.first", "optimiser.muon.second", "optimiser.muon.steps"]
    fresh = local_sgd(task, adamw).weights.parameters
    assert local_sgd(replace(task, state=left), adamw).weights.parameters.tobytes() == fresh.tobytes()


def test_what_is_trained_beside_begins_anew_and_leaves_nothing(small: Any) -> None:
    """Ditto's own model takes nothing of the state of the model that goes back, and gives it nothing."""
    task = small.task(pace=LocalSchedule(0.03, 2))
    plain = SGD(batch=4, optimiser="adamw", optimiser_state="kept")
    ditto = find("clients", "ditto")(batch=4, optimiser="adamw", optimiser_state="kept")
    for state in ({}, local_sgd(task, plain).optimiser):
        ours, theirs = (method.train(replace(task, state=state)) for method in (ditto, plain))
        assert ours.weights.parameters.tobytes() == theirs.weights.parameters.tobytes()
        assert {name: value.tobytes() for name, value in ours.optimiser.items()} == {
            name: value.tobytes() for name, value in theirs.optimiser.items()
        }
        beside = task.beside(task.start, 2)
        assert local_sgd(replace(beside, state=state), plain).optimiser == {}
        begun = [local_sgd(replace(beside, state=one), plain).weights.parameters.tobytes() for one in (state, {})]
        assert begun[0] == begun[1]


@pytest.mark.parametrize("method", [SGD, FedSWA])
@pytest.mark.parametrize("rule", ["fresh", "kept"])
def test_several_clients_at_once_step_as_each_alone(small: Any, method: Any, rule: Any, close: Any) -> None:
    """Clients of other numbers of steps, each with its own bias corrections; those that wait stay where they are."""
    own = method(batch=3, weight_decay=0.1, clip=0.5, optimiser="adamw", optimiser_state=rule)
    sizes, ends = [2, 9, 5], np.cumsum([2, 9, 5])
    tasks = [
        small.task(client=k, indices=np.arange(end - n, end), pace=LocalSchedule(0.02, 2))
        for k, (n, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    for _ in range(2):
        alone = [own.train(task) for task in tasks]
        task = VectorizedTask.of(tasks)
        together = updates_of(task, own.train(replace(task, bench=VectorizedModel(small.module, len(tasks)))))
        for one, other in zip(together, alone, strict=True):
            close(one.weights.parameters, other.weights.parameters, 1e-9)
            assert one.steps == other.steps
            assert one.loss == pytest.approx(other.loss)
            assert np.isnan(one.reach)
            assert one.optimiser.keys() == other.optimiser.keys()
            for name in one.optimiser:
                close(one.optimiser[name], other.optimiser[name], 1e-9)
                assert one.optimiser[name].shape == other.optimiser[name].shape
        # some of them have been here before, as clients that take part in other rounds
        tasks = [tasks[0], *(replace(t, state=u.optimiser) for t, u in zip(tasks[1:], alone[1:], strict=True))]


def test_methods_say_which_optimisers_they_take() -> None:
    assert {name for name in names("clients") if find("clients", name).any_optimiser} == ANY
    for name in set(names("clients")) - ANY - {"mime", "mimelite"}:
        assert find("clients", name).why_sgd, name


@pytest.mark.parametrize("name", sorted(names("clients")))
def test_a_method_takes_an_optimiser_or_is_refused_by_name(name: str) -> None:
    tables = merge(preset(name) if name != "sgd" else {}, {"client": {"method": name, "optimiser": "adamw"}})
    if name in ANY:
        assert Config.read(tables).client.optimiser == "adamw"
        return
    known = find("clients", name)
    with pytest.raises(FedscopeError) as refused:
        Config.read(tables)
    assert (f"client.method = {name!r}" in str(refused.value)) or (known.about.name in str(refused.value))
    assert "client.optimiser = 'adamw'" in str(refused.value)
    assert "client.optimiser=sgd" in str(refused.value) or "one of momentum, adam" in str(refused.value)


@pytest.mark.parametrize(
    ("client", "sentence"),
    [
        (
            SGD(optimiser="adamm"),
            "'adamm' is not an optimiser; did you mean \"adamw\"?; it takes sgd, adamw, muon, or ",
        ),
        (SGD(optimiser_state="kept"), "SGD's momentum is fresh each round; leave it out"),
        (SGD(optimiser="adamw", momentum=0.5), "client.momentum = 0.5 is SGD's, and client.optimiser = 'adamw' has"),
    ],
)
def test_what_makes_no_sense_is_refused(client: ClientMethod, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=r"client\.") as refused:
        refuse_optimiser(client)
    assert sentence in str(refused.value)


def test_momentum_may_stay_at_its_default_or_at_none() -> None:
    for momentum in (0.9, 0.0):
        refuse_optimiser(SGD(optimiser="adamw", momentum=momentum))


def test_servers_that_count_sgds_steps_refuse_others() -> None:
    tables = {"client": {"optimiser": "adamw"}, "server": {"method": "fednova"}}
    with pytest.raises(
        FedscopeError, match=r"--server fednova counts steps .* client\.optimiser = 'adamw'; take --set"
    ):
        Config.read(tables)


def test_sam_perturbs_no_weight_decay_that_is_not_in_the_gradient(small: Any, close: Any) -> None:
    tables = {"client": {"method": "fedsam", "optimiser": "adamw", "sam_decay": "within"}}
    with pytest.raises(
        FedscopeError, match=r"sam_decay = 'within' perturbs .* 'adamw' keeps it out .*\.sam_decay=apart"
    ):
        Config.read(tables)
    # as ρ goes to 0, FedSAM with AdamW is AdamW: its decay is in no gradient
    task = small.task(pace=LocalSchedule(0.03, 2))
    near = find("clients", "fedsam")(batch=4, weight_decay=0.3, sam_rho=1e-9, optimiser="adamw").train(task)
    close(
        near.weights.parameters,
        local_sgd(task, SGD(batch=4, weight_decay=0.3, optimiser="adamw")).weights.parameters,
        1e-7,
    )


class Mine(SGD):
    """A method of one's own that says nothing of optimisers."""

    def train(self, task: LocalTask) -> Any:
        return local_sgd(task, self)


class Sure(SGD):
    """One that says that its formula goes with any."""

    any_optimiser: ClassVar[bool] = True

    def train(self, task: LocalTask) -> Any:
        return local_sgd(task, self)


def test_a_method_of_ones_own_says_itself_that_it_takes_others() -> None:
    with pytest.raises(
        FedscopeError, match=r"Mine', which does not say .* write any_optimiser: ClassVar\[bool\] = True"
    ):
        refuse_optimiser(Mine(optimiser="adamw"))
    refuse_optimiser(Sure(optimiser="adamw"))


def own(factory: Any, **settings: Any) -> ClientMethod:
    return SGD(optimiser=OwnCode.of("mine:make", factory), **{"weight_decay": 0.0, **settings})


class Replaces(torch.optim.SGD):
    """An optimiser that puts other tensors in the parameters' place."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data = parameter.data - 0.1 * parameter.grad


class Counts(torch.optim.SGD):
    """An optimiser that counts its steps in its groups."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.param_groups[0]["k"] = self.param_groups[0].get("k", 0) + 1


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (own(lambda parameters: 3), "'mine:make' gives a int; it is to give a torch.optim.Optimizer"),
        (own(lambda: 3), "'mine:make' failed with TypeError"),
        (own(torch.optim.LBFGS), "its step() failed with TypeError"),
        (own(torch.optim.AdamW, weight_decay=0.1), "a weight decay of its own, 0.01, and client.weight_decay = 0.1"),
        (own(Replaces), "its step() puts other tensors in the place of the parameters"),
        (own(torch.optim.Adafactor, optimiser_state="kept"), "give --set client.optimiser_state=fresh"),
        (own(lambda parameters: torch.optim.SGD(parameters, lr=0.0)), "has a rate of 0 in all of its groups, so that"),
        (own(Counts, optimiser_state="kept"), "keeps something in its groups, not by parameter"),
    ],
)
def test_code_that_is_no_optimiser_is_refused_before_anybody_trains(
    small: Any, method: ClientMethod, sentence: str
) -> None:
    with pytest.raises(FedscopeError, match=r"client\.") as refused:
        refuse_useless(method, small.module, "2", "small")
    assert sentence in str(refused.value)


def test_what_is_refused_when_kept_is_taken_fresh(small: Any) -> None:
    for factory in (torch.optim.Adafactor, Counts):
        refuse_useless(own(factory), small.module, "2", "small")
        assert np.isfinite(local_sgd(small.task(), own(factory)).weights.parameters).all()


def test_vectors_that_clients_keep_are_counted() -> None:
    assert vectors_kept(SGD()) == 0
    assert vectors_kept(SGD(optimiser="adamw", optimiser_state="fresh")) == 0
    assert vectors_kept(SGD(optimiser="adamw", optimiser_state="kept")) == 2
    assert vectors_kept(find("clients", "feddyn")(optimiser="muon", optimiser_state="kept")) == 3
    momentum = OwnCode.of("mine:heavy", lambda parameters: torch.optim.SGD(parameters, momentum=0.9))
    assert vectors_kept(SGD(optimiser=momentum, optimiser_state="kept")) == 1
    assert vectors_kept(SGD(optimiser=ADAM, optimiser_state="kept")) == 2


def test_the_optimiser_that_mime_mimics_is_its_own_setting() -> None:
    """Another method drops it, and the local optimiser is never taken for it."""
    mime = {"client": {"method": "mime", "optimiser": "adam"}}
    assert merge(mime, {"client": {"method": "sgd"}}) == {"client": {"method": "sgd"}}
    assert Config.read(mime).client.local_optimiser == "sgd"
    adamw = merge({"client": {"method": "sgd", "optimiser": "adamw"}}, {"client": {"method": "fedprox"}})
    assert adamw["client"]["optimiser"] == "adamw"


def test_a_rate_that_is_sgds_default_is_noticed(tmp_path: Any) -> None:
    from fedscope.training import train

    small = {"data": {"clients": 2}, "model": {"hidden": [4]}, "client": {"epochs": 1}, "run": {"rounds": 1}}
    with pytest.warns(FedscopeWarning, match=r"client\.lr = 0\.05 is the default rate of SGD, and adamw moves every"):
        train({**small, "client.optimiser": "adamw"}, tmp_path / "run")


def two_rates(parameters: Any) -> torch.optim.Optimizer:
    first, *others = parameters
    return torch.optim.SGD([{"params": [first], "lr": 0.3}, {"params": others, "lr": 0.03}])


def dropped(name: str, own: str, lr: str, more: str = "") -> str:
    return (
        f"client.optimiser = {name!r} has lr = {own} of its own, which is not used{more}: client.lr = {lr} is; give "
        f"--lr {own}"
    )


class HandsOn(torch.optim.Adam):
    def __init__(self, parameters: Any, **keywords: Any) -> None:
        super().__init__(parameters, **keywords)


class Slow(torch.optim.Adam):
    def __init__(self, parameters: Any, lr: float = 0.01) -> None:
        super().__init__(parameters, lr=lr)


RATIOS = ", but for the ratios of its groups' rates"
SGDS = (
    "client.lr = 0.05 is the default rate of SGD, and mine:make moves every parameter by about the rate at each step; "
)
SGDS += "give --lr 0.001 or so"


@pytest.mark.parametrize(
    ("factory", "lr", "sentence"),
    [
        (partial(torch.optim.Adam, lr=0.001), 0.05, dropped("mine:make", "0.001", "0.05")),  # also the class's default
        (lambda parameters: torch.optim.SGD(parameters, 0.3), 0.1, dropped("mine:make", "0.3", "0.1")),
        (two_rates, 0.05, dropped("mine:make", "0.3", "0.05", RATIOS)),
        (torch.optim.Adam, 0.05, SGDS),
        (partial(torch.optim.NAdam, betas=(0.8, 0.9)), 0.05, SGDS),
        (partial(torch.optim.Adam, lr=1), 0.05, SGDS),  # which stands for the round's
        (partial(torch.optim.Adam, lr=0.001), 0.001, ""),
        (torch.optim.Adam, 0.002, ""),
        (torch.optim.SGD, 0.05, ""),
        (partial(torch.optim.SGD, momentum=0.9), 0.3, ""),
        (lambda parameters: 3, 0.05, ""),
        (HandsOn, 0.002, ""),
        (HandsOn, 0.05, SGDS),
        (partial(HandsOn, lr=0.002), 0.05, dropped("mine:make", "0.002", "0.05")),
        (Slow, 0.002, ""),
        (lambda parameters: Slow(parameters, lr=0.001), 0.002, dropped("mine:make", "0.001", "0.002")),
    ],
)
def test_a_rate_of_an_optimisers_own_is_told(small: Any, factory: Any, lr: float, sentence: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_rate(SGD(lr=lr, optimiser=OwnCode.of("mine:make", factory)), small.module)
    assert [str(one.message) for one in caught] == [sentence][: bool(sentence)]


def test_a_rate_of_what_python_was_handed_is_told(small: Any) -> None:
    given = partial(torch.optim.Adam, lr=0.001)  # also the class's default
    code, _ = handed_code(KINDS["optimiser"], given, "optimiser=")
    with pytest.warns(FedscopeWarning) as caught:
        warn_of_rate(SGD(lr=0.02, optimiser=code), small.module)
    assert [str(one.message) for one in caught] == [dropped("torch.optim.adam:Adam(lr=0.001)", "0.001", "0.02")]


def test_a_rate_that_a_name_brings_is_told(small: Any) -> None:
    text = "torch.optim:Adam(lr=0.01)"
    code = OwnCode.of(text, ImportString.parse("--set client.optimiser", text))
    with pytest.warns(FedscopeWarning) as caught:
        warn_of_rate(SGD(optimiser=code), small.module)
    assert [str(one.message) for one in caught] == [dropped(text, "0.01", "0.05")]


def test_the_page_on_optimisers_lists_the_methods_that_take_them_and_those_that_do_not() -> None:
    page = (Path(__file__).parents[3] / "docs/howto/optimisers.md").read_text(encoding="utf-8")
    taken, refused = page.partition("## Which methods go with it")[2].split("These are refused by name")
    clients = set(names("clients"))
    assert set(re.findall(r"`([\w-]+)`", taken)) & clients == ANY
    assert set(re.findall(r"`([\w-]+)`", refused.partition("FedDyn's")[0])) & clients == clients - ANY
