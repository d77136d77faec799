"""Methods that are wrong on purpose: each is caught by the check that is about it, and by no other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fedscope.checkpoints import FedscopeError
from fedscope.methods import (
    Averaged,
    AverageMethod,
    ClientMethod,
    Cohort,
    History,
    LocalTask,
    LocalUpdate,
    Served,
    ServerMethod,
    State,
    Weights,
    local_sgd,
    mean_update,
    setting,
    updates,
    weighted_update,
)
from fedscope.testing import check_method


@dataclass(frozen=True)
class Mean(ServerMethod):
    """w⁺ = w + Σ p_i Δ_i: a server as it should be; the wrong ones change one line of it."""

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        return weighted_update(start, clients, cohort.p)

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        moved = start.parameters + self.direction(start, clients, cohort)
        return Served(moved.astype(start.layout.dtype), self.keep(state, start))

    def keep(self, state: State, start: Weights) -> State:
        return {}


@dataclass(frozen=True)
class FirstCountsTwice(Mean):
    """Order-dependent."""

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        p = cohort.p * np.where(np.arange(len(cohort.p)) == 0, 2, 1)
        return weighted_update(start, clients, p / p.sum())


@dataclass(frozen=True)
class Noisy(Mean):
    """Random without a seed."""

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        noise = np.random.default_rng().normal(size=start.parameters.shape)
        return super().direction(start, clients, cohort) * (1 + 0.01 * noise)


@dataclass(frozen=True)
class Growing(Mean):
    """State that grows."""

    def keep(self, state: State, start: Weights) -> State:
        return {"past": np.concatenate([state.get("past", np.zeros(0)), np.ones(1)])}


@dataclass(frozen=True)
class NewNames(Mean):
    """State with a new name each round."""

    def keep(self, state: State, start: Weights) -> State:
        return {**state, f"round-{len(state)}": np.ones(1)}


@dataclass(frozen=True)
class Precise(Mean):
    """State whose type changes between rounds, which its shapes do not show."""

    def keep(self, state: State, start: Weights) -> State:
        return {"count": np.ones(1, np.float32 if "count" not in state else np.float64)}


@dataclass(frozen=True)
class Swallowing(Mean):
    """NaN swallowed."""

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        total = np.zeros(start.parameters.shape)
        for p, update in zip(cohort.p, updates(start, clients), strict=True):
            total += p * np.nan_to_num(update)
        return total


@dataclass(frozen=True)
class AllAlike(Mean):
    """A client of weight 0 is used."""

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        return mean_update(start, clients)


@dataclass(frozen=True)
class SaysAlike(Mean):
    """Says that clients count alike, and weighs them."""

    unweighted: ClassVar[bool] = True


@dataclass(frozen=True)
class Normalised(Mean):
    """Says that it reads columns, and divides by the length of the whole update."""

    reads: ClassVar[Any] = "columns"

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        update = super().direction(start, clients, cohort)
        return update / max(np.linalg.norm(update), 1e-12)


@dataclass(frozen=True)
class Copying(Mean):
    """Says that it reads columns, and copies the cohort in float64."""

    reads: ClassVar[Any] = "columns"

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        rows = clients.parameters.astype(np.float64)
        return cohort.p @ rows - start.parameters


@dataclass(frozen=True)
class Half(Mean):
    """Names a limit in which it is half as fast as FMA."""

    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"rate": 0.5}}
    rate: float = setting(1.0, "η: the step", above=0)

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        return self.rate * weighted_update(start, clients, cohort.p)


@dataclass(frozen=True)
class Fragile(Mean):
    """Fails with a client method that it does not refuse."""

    def resolve(self, config: Any) -> Fragile:
        return replace(self, with_=type(config.client).__name__)

    with_: str = setting("", "the client method's class")

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        return [][0] if self.with_ == "SCAFFOLD" else super().step(state, start, clients, cohort)


@dataclass(frozen=True)
class Remembering(Mean):
    """Keeps a state in itself, which no resumed run finds, and no other step does without."""

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        before = self.__dict__.get("before", 0.0)
        object.__setattr__(self, "before", super().direction(start, clients, cohort) + 0.5 * before)
        return np.asarray(self.__dict__["before"])


@dataclass(frozen=True)
class Plain(Mean):
    """Keeps a Python number, which comes back from a file as an array, and tells them apart."""

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        far = 1.5 if isinstance(state.get("n"), int) else 1.0
        moved = start.parameters + far * weighted_update(start, clients, cohort.p)
        return Served(moved.astype(start.layout.dtype), {"n": 3})  # type: ignore[dict-item]


@dataclass(frozen=True)
class InPlace(Mean):
    """Turns the clients into their updates, where they are."""

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        rows = clients.parameters
        rows -= start.parameters
        return np.asarray(cohort.p.astype(np.float32) @ rows)


@dataclass(frozen=True)
class Empty(Mean):
    """Divides by how far the clients went."""

    reads: ClassVar[Any] = "rows"

    def direction(self, start: Weights, clients: Weights, cohort: Cohort) -> np.ndarray:
        update = super().direction(start, clients, cohort)
        return 0.5 * update / np.linalg.norm(update)


@dataclass(frozen=True)
class Brave(ClientMethod):
    """Swallows NaN: where the loss is none it returns what it was sent."""

    def train(self, task: LocalTask) -> LocalUpdate:
        update = local_sgd(task, self)
        if np.isfinite(update.loss):
            return update
        return replace(update, weights=task.start, loss=0.0)


@dataclass(frozen=True)
class Fading(ClientMethod):
    """Each client that is trained goes less far than the one before."""

    def train(self, task: LocalTask) -> LocalUpdate:
        count = self.__dict__.get("count", 0) + 1
        object.__setattr__(self, "count", count)
        return local_sgd(task, self, correct=lambda w, g: g.mul_(1 / count))


@dataclass(frozen=True)
class OneForAll(ClientMethod):
    """Says that it is vectorised, and takes one norm for all clients."""

    vectorised: ClassVar[bool] = True

    def train(self, task: LocalTask) -> LocalUpdate:
        return local_sgd(task, self, correct=lambda w, g: g.div_(1 + g.norm()))


@dataclass(frozen=True)
class Unseeded(ClientMethod):
    """Draws from torch's own generator."""

    def train(self, task: LocalTask) -> LocalUpdate:
        return local_sgd(task, self, correct=lambda w, g: g.add_(torch.rand_like(g), alpha=0.01))


@dataclass(frozen=True)
class Perturbed(ClientMethod):
    """Sends its model with noise, which replays have, too."""

    def numbers(self, task: LocalTask) -> tuple[int, ...]:
        return task.seed, task.round, task.client

    def train(self, task: LocalTask) -> LocalUpdate:
        update = local_sgd(task, self)
        model, draw = update.weights, np.random.default_rng(self.numbers(task))
        noise = 0.01 * draw.normal(size=model.parameters.shape)
        moved = (model.parameters + noise).astype(model.layout.dtype)
        return replace(update, weights=replace(model, parameters=moved))


@dataclass(frozen=True)
class PerturbedAnew(Perturbed):
    """As the sentence advises."""

    def numbers(self, task: LocalTask) -> tuple[int, ...]:
        return task.seed, task.round, task.client, task.draw


@dataclass(frozen=True)
class PerturbedOnce(Perturbed):
    """The same in all rounds: no noise of a round's."""

    def numbers(self, task: LocalTask) -> tuple[int, ...]:
        return task.seed, task.client


@dataclass(frozen=True)
class OwnMean(AverageMethod):
    """The mean of the last two globals: an average as it should be."""

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        before = [history.row(t).parameters for t in self.members(round)[:-1]]
        return Averaged(Weights(global_.layout, np.mean([*before, global_.parameters], axis=0), global_.buffers))

    def members(self, round: int) -> tuple[int, ...]:
        return tuple(range(max(1, round - 1), round + 1))

    def window_size(self) -> int:
        return 1


@dataclass(frozen=True)
class WrongMembers(OwnMean):
    """Weighs the last one twice."""

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        found = super().average(state, round, global_, history).weights
        assert found is not None
        values = (found.parameters + global_.parameters) / 2
        return Averaged(Weights(global_.layout, values, global_.buffers))

    def members(self, round: int) -> tuple[int, ...]:
        return super().members(round)


@dataclass(frozen=True)
class BeginsLate(OwnMean):
    """Says that it begins in round 3, and does in round 1."""

    def begins(self) -> int:
        return 3


@dataclass(frozen=True)
class LooksFar(OwnMean):
    """Says that it looks back a round, and looks back two."""

    def members(self, round: int) -> tuple[int, ...]:
        return tuple(range(max(1, round - 2), round + 1))


@dataclass(frozen=True)
class SkipsNaN(OwnMean):
    """NaN swallowed."""

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        rows = [history.row(t).parameters for t in self.members(round)[:-1]] + [global_.parameters]
        return Averaged(Weights(global_.layout, np.nan_to_num(np.mean(rows, axis=0)), global_.buffers))


WRONG: list[tuple[type[Any], str, str]] = [
    (FirstCountsTwice, "order", r"another order of the clients changes \d\.\de-0[12] of the update, more than round"),
    (Noisy, "same-seed", r"one step, taken twice, gives another model the second time, off by \S+ of its norm; draw"),
    (Growing, "state", r"Growing.step changes the form of the state in round 2 \(past had shape \[1\] and has \[2\]\)"),
    (NewNames, "state", r"NewNames.step changes the form of the state in round 2 \(round-1 is new\); keep the same"),
    (Precise, "state", r"server count is float64 \[1\] in round 2 and was float32 \[1\]"),
    (Swallowing, "nan", "a client that is NaN leaves a finite model, so that nobody learns of it"),
    (AllAlike, "weight-0", r"a client of weight 0, far away, changes \S+ of the update, more than .*unweighted = True"),
    (SaysAlike, "weight-0", "but the class says that clients count alike; leave unweighted out"),
    (Normalised, "columns", r"3 blocks of columns give the result off by \S+ of its norm; say reads = 'layers'"),
    (Copying, "memory", r"a step takes 8\.\d bytes for each parameter of a further client, a copy of the cohort in"),
    (Half, "limits", r"with rate = 0\.5 it is not fma: after 5 rounds it is off by \S+ of the model's norm"),
    (Fragile, "combinations", r"with --client scaffold and --average \w+ it fails with IndexError"),
    (Remembering, "same-seed", r"one step, taken twice, gives another model the second time, off by \S+ of its norm"),
    (Plain, "resume", r"interrupted in round 3 and resumed, rounds/00003.h5: .*global.* differs by"),
    (InPlace, "arguments", r"InPlace\.step changes clients\.parameters in place \(line \d+ of test_wrong_methods"),
    (Empty, "identical-clients", "clients who all equal the model that was sent give NaN"),
    (Brave, "nan", "a client whose samples are NaN returns a finite model and the loss 0, so that nobody learns of it"),
    (OneForAll, "vectorised", r"8 clients in one pass: .* off by \S+ of the norm from one by one, more than 1.0e-05"),
    (Unseeded, "same-seed", "trained twice with one seed, rounds/00001.h5"),
    (
        Perturbed,
        "draws",
        r"^another seed, round or client moves a client's update by \d\S+ of its norm or more, another draw by \S+: "
        r"replays \(decompose --draws local:R\) would all meet the same noise; draw from "
        r"np\.random\.default_rng\(\(task\.seed, task\.round, task\.client, task\.draw\)\)$",
    ),
    (WrongMembers, "members", r"members\(2\) = \(1, 2\), but the average is off by \S+ of its norm from the mean"),
    (BeginsLate, "begins", r"begins\(\) = 3, but round 1 differs from one without an average: .*averaged"),
    (LooksFar, "looks-back", r"in round 3 it looks 2 rounds back, but reaches_back\(\) = 1; a resumed run would not"),
    (SkipsNaN, "nan", "the global model of round 1 is NaN, and the average of round 1 is finite"),
]  # fmt: skip
#: those of the ordinary suite, and those that cost little
ORDINARY = (FirstCountsTwice, Noisy, Growing, Swallowing, AllAlike, Copying, Perturbed, LooksFar)


def asked_of(kind: type[Any], check: str) -> Any:
    """The check itself, and those before it that could have taken the blame."""
    return check_method(
        kind, only=["plays", "state", "same-seed", "order", "weight-0", "nan", "memory", "columns", check]
    )


@pytest.mark.parametrize(
    ("kind", "check", "words"),
    [pytest.param(*row, marks=() if row[0] in ORDINARY else pytest.mark.slow, id=row[0].__name__) for row in WRONG],
)
def test_a_wrong_method_is_caught_by_the_check_that_is_about_it(kind: type[Any], check: str, words: str) -> None:
    report = asked_of(kind, check)
    assert report.failed == (check,), report
    assert not report.passed
    (line,) = (line for line in report.lines if line.outcome == "failed")
    assert re.search(words, line.words), line.words
    with pytest.raises(AssertionError, match=rf"{kind.__name__}: \d+ checks passed and 1 failed \({check}\)\nFAILED"):
        report.raise_for_failures()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (PerturbedAnew, r"random numbers of its own move a client's update by \d\S+ of its norm from draw to draw"),
        (PerturbedOnce, "it draws no random numbers of its own by seed, round and client"),
        ("fedprox", "it draws no random numbers of its own by seed, round and client"),
    ],
)
def test_noise_with_the_draw_and_none_are_right(kind: Any, words: str) -> None:
    """A choice that is the same in all rounds is no noise of a round's."""
    (line,) = check_method(kind, only=["draws"]).lines
    assert line.outcome == ("passed" if kind is PerturbedAnew else "not asked"), line
    assert re.fullmatch(words, line.words), line.words


@pytest.mark.slow
def test_a_client_that_depends_on_the_others_is_caught_in_whatever_it_is_trained() -> None:
    assert {"order", "resume", "replay"} <= set(check_method(Fading).failed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, _, _ in WRONG], ids=lambda kind: kind.__name__)
def test_no_wrong_method_passes_all_checks_and_each_fails_the_right_one_alone(kind: type[Any]) -> None:
    check = next(check for found, check, _ in WRONG if found is kind)
    # a run whose average is not the mean of the rounds that it says contradicts itself, and so cannot be resumed either
    also = ("resume",) if kind is WrongMembers else ()
    assert check_method(kind).failed == (*also, check)


@pytest.mark.parametrize("kind", [Mean, OwnMean])
def test_the_right_ones_that_they_are_made_of_pass(kind: type[Any]) -> None:
    check_method(kind, only=[name for name in EVERY if name != "combinations"]).raise_for_failures()


EVERY = [
    "plays", "arguments", "state", "same-seed", "workers", "resume", "replay", "combinations", "identical-clients",
    "order", "weight-0", "vectorised", "columns", "memory", "members", "begins", "looks-back", "limits", "nan",
]  # fmt: skip


def test_what_gives_other_numbers_each_time_is_not_blamed_for_more() -> None:
    report = check_method(Noisy, only=["same-seed", "resume", "nan"])
    assert [(line.check, line.outcome) for line in report.lines] == [
        ("same-seed", "failed"),
        ("resume", "not asked"),
        ("nan", "passed"),
    ]
    assert report.lines[1].words == "it gives other numbers each time, see same-seed"


def test_what_cannot_be_trained_says_why_once() -> None:
    report = check_method(Growing, only=["plays", "resume", "order"])
    assert [line.outcome for line in report.lines] == ["failed", "not asked", "passed"]
    assert "changes the form of the state" in report.lines[0].words
    assert report.lines[1].words == "it could not be trained"


def test_a_report_is_one_screen_with_what_failed_first() -> None:
    report = check_method(AllAlike, only=["order", "weight-0", "nan"])
    shown = repr(report).splitlines()
    assert shown[0].endswith("test_wrong_methods:AllAlike: FAILED weight-0")
    assert shown[1].startswith("  FAILED  weight-0")
    assert len(shown) <= 25
    assert max(map(len, shown)) <= 100


def test_objects_names_and_modules_are_checked_and_what_is_no_method_is_refused() -> None:
    assert [line.kind for line in check_method("fedswa", only="order").lines] == ["client", "server"]
    report = check_method(Half(rate=0.25), only="order", settings={"data.clients": 4})
    assert report.method.endswith("test_wrong_methods:Half")
    assert report.passed
    with pytest.raises(
        FedscopeError, match="method = int is no method; give a name, a class derived from ClientMethod"
    ):
        check_method(int)
    with pytest.raises(FedscopeError, match=r'.fedavgn. is not a method .*did you mean "fedavgm"'):
        check_method("fedavgn")
    with pytest.raises(FedscopeError, match=r"only='ordre' is not a check; did you mean .order."):
        check_method("fma", only="ordre")
    with pytest.raises(FedscopeError, match=r"server\.beta is not a setting of FMA"):
        check_method("fma", settings={"server.beta": 1})


@pytest.mark.parametrize("settings", [{"method": "ima"}, {"client.method": "sgd"}, {"client": {"method": "fedsam"}}])
def test_settings_do_not_put_another_method_in_the_place_of_the_one_that_is_checked(settings: dict[str, Any]) -> None:
    words = (
        r"the settings choose client\.method = '(sgd|fedsam)' in the place of fedprox, which is to be checked; leave"
    )
    with pytest.raises(FedscopeError, match=words):
        check_method("fedprox", only="order", settings=settings)
    # beside it any may be chosen
    assert check_method("fedprox", only="order", settings={"method": "fedprox", "average.method": "ima"}).passed
