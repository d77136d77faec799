"""The interface of client, server and average methods. Any client x any server x any average composes.

A method is a frozen dataclass of hyper-parameters with functions over explicit state; the round loop
(:mod:`fedscope.training.loop.federation`) is written once and calls them. They leave what they are given as it is:
others read it afterwards, and a run records it. A file on a shelf (``clients/``,
``servers/``, ``averages/``) names its class ``PROVIDES``.

One round, in the order of the calls::

    start = server.look_ahead(...)             what is sent is the last global, or the average over rounds
    [client.survey(task)                       a pass before local training, where the method has one]
    client.train(task) -> LocalUpdate          the client's model, its message, its state
    server.step(...)   -> Served               global
    client.share(...)  -> sent                 what is sent with the model in the next round
    average.average(...) -> Averaged           averaged
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from ...checkpoints import Layout, Weights
from ..guards.protected_classes import holds_arrays
from ..guards.returned_arrays import is_somebodys
from ..settings.settings import Settings, setting
from .replayed_average import replay_average

if TYPE_CHECKING:
    from ..config.config import Config
    from ..local.local_training import LocalTask, LocalUpdate
    from ..models.model_info import ModelInfo

#: arrays by name; those of shape [P] are vectors in parameter space and are recorded parameter by parameter
State = Mapping[str, np.ndarray]
#: losses and errors [M] of models [M, P]
Validator = Callable[[Weights], tuple[np.ndarray, np.ndarray]]
#: what a client keeps: arrays, or whole models with their buffers
ClientState = Mapping[str, np.ndarray | Weights]


@dataclass(frozen=True)
class MethodInfo:
    """A method's row of the feature table in ``docs/methods.md``.

    Attributes:
        name: as its paper writes it.
        paper: authors, title in short, venue and year.
        changes: what it changes against FMA, as a formula where one line holds it.
        keeps: the state it keeps between rounds, and who keeps it; empty for none.
        down, up: parameters that travel for one client in one round, in P (the model), H (its head), and what the
            method names itself; the method's own part only. Empty where the method adds nothing.
    """

    name: str
    paper: str
    changes: str
    keeps: str = ""
    down: str = ""
    up: str = ""


def _describe(method: type[Any]) -> None:
    """Give a method that says nothing about itself its class's name, and the first line of its docstring."""
    if "about" not in vars(method) and not any("about" in vars(base) for base in method.__mro__[1:]):
        first = (vars(method).get("__doc__") or "").strip().partition("\n")[0]
        method.about = MethodInfo(method.__name__, "", first)


def _has_functions_before(method: type[Any], flag: str, known: Collection[str] = ()) -> bool:
    """Check whether a method has functions, be they a mixin's, that come before the class that states a flag: what
    that class says of its own functions need not hold of these.

    Args:
        known: names of functions that do not count; nor do those of fedscope's methods that one of somebody's own is
            derived from.
    """
    for base in method.__mro__:
        if flag in vars(base):
            return False
        if is_somebodys(method) and not is_somebodys(base):
            continue
        names = (name for name, value in vars(base).items() if callable(value) or hasattr(type(value), "__get__"))
        if any(not name.startswith("__") and name not in known for name in names):
            return True
    return False


class LocalSchedule(NamedTuple):
    """The learning rate eta_t and the number of local epochs of a round's clients."""

    lr: float
    epochs: int


@dataclass(frozen=True)
class ClientMethod(Settings):
    """The local training of a client: what it minimises and how it steps. These nine settings are common to all client
    methods.

    Momentum and weight decay are those of the authors' code of Zhou et al. (IEEE TMC 2024). Their batch is 50; here it
    is 20, because a client of the embedded digits has 29 samples, and with one full batch an epoch nothing is left to
    shuffle, so that replays would show no variance.
    """

    section: ClassVar[str] = "client"
    about: ClassVar[MethodInfo]  #: its row of the feature table
    needs_head: ClassVar[bool] = False  #: whether it needs to know which layer is the model's head
    #: what it does with the head: asks which of the model's numbers are its, reads the inputs that ``forward`` gives
    #: it, calls it for outputs of its own, or both
    head_use: ClassVar[Literal["numbers", "inputs", "outputs", "both"]] = "numbers"
    needs_classes: ClassVar[bool] = False  #: whether it is defined for classification alone
    proximal: ClassVar[bool] = False  #: whether a term pulls towards another model: steps are not plain (momentum) SGD
    changing_rate: ClassVar[bool] = False  #: whether the learning rate changes inside a round
    own_start: ClassVar[bool] = False  #: whether clients start from another model than the one that was sent
    surveys: ClassVar[bool] = False  #: whether :meth:`survey` is called before local training
    message_weighting: ClassVar[Literal["p", "uniform"]] = "p"  #: how messages are averaged: with p, or with 1/C each
    personal: ClassVar[bool] = False  #: whether clients use models of their own, see :meth:`personalise`
    own_model: ClassVar[str] = ""  #: what they keep that model as, where they keep one
    freezes_head: ClassVar[bool] = False  #: whether the head never changes
    #: whether :meth:`train` also takes several clients at once, with a row a client where one has a vector; see
    #: :mod:`fedscope.training.local.vectorized_training`. A class with functions of its own says so itself
    vectorised: ClassVar[bool] = False
    vectors_kept: ClassVar[int] = 0  #: how many vectors [P] a client keeps between participations, for a run's room
    #: whether its formula holds whatever optimiser steps along the gradient, and whether its steps are those of
    #: :func:`~fedscope.training.local.local_training.local_sgd`. A class with functions of its own says so itself
    any_optimiser: ClassVar[bool] = False
    why_sgd: ClassVar[str] = ""  #: why it needs SGD's steps, for the sentence that refuses another optimiser
    #: what it equals with which settings, by the other method's name: ``{"fma": {"beta": 0.0}}``; both are trained by
    #: ``check-method``, which gives settings that the other one has to that one, too
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: settings with which it does something in the five rounds of ``check-method``, where its defaults do not
    check_with: ClassVar[Mapping[str, Any]] = {}

    epochs: int = setting(5, "local epochs per round", least=1)
    batch: int = setting(20, "mini-batch size; a client with fewer samples has one batch of all", least=1)
    lr: float = setting(0.05, "learning rate of round 1 (eta_0)", above=0)
    lr_decay: float = setting(0.0, "decay per round: eta_t = eta_0 (1 - d)^(t-1)", least=0, below=1)
    momentum: float = setting(0.9, "momentum of the local steps, fresh each round", least=0, below=1)
    weight_decay: float = setting(
        1e-3, "L2 penalty added to the gradient; with adamw and muon the weights shrink by it instead", least=0
    )
    clip: float = setting(0.0, "largest norm of the mini-batch gradient; 0: no clipping", least=0)
    optimiser: str = setting(
        "sgd", "local optimiser: sgd, adamw, muon, or module:Factory, code of your own", before="sgd"
    )
    optimiser_state: Literal["fresh", "kept"] = setting(
        "fresh", "an optimiser's moments begin anew each round, or (not SGD's) are kept by client", before="fresh"
    )

    def __init_subclass__(cls) -> None:
        _describe(cls)
        for flag in ("vectorised", "any_optimiser"):
            if _has_functions_before(cls, flag):
                setattr(cls, flag, False)

    def resolve(self, config: Config) -> Self:
        """Fill in what depends on the rest of the configuration, once, and refuse what does not go with it.

        Raises:
            FedscopeError: a combination that makes no sense, with the reason.
        """
        return self

    def doubts(self, outputs: int, samples: Sequence[int]) -> Iterator[str]:
        """Yield what is said where a run is trained and measured, a sentence each.

        Args:
            outputs: of the model's head; 0 where none is known.
            samples: of each client.
        """
        yield from ()

    @property
    def local_optimiser(self) -> str:
        """What steps along the gradient: ``sgd``, ``adamw``, ``muon``, or code of the user's own."""
        return self.optimiser

    @property
    def gradient_decay(self) -> float:
        """The weight decay that is part of the gradient: none where the optimiser shrinks weights itself."""
        return 0.0 if self.local_optimiser in ("adamw", "muon") else self.weight_decay

    @property
    def takes_several(self) -> bool:
        """True if :meth:`train` takes several clients at once, with the optimiser that was chosen."""
        return self.vectorised and self.local_optimiser in ("sgd", "adamw")

    def pace(self, round: int) -> LocalSchedule:
        """eta_t = eta_0 (1 - d)^(t-1) and the number of epochs of round t."""
        return LocalSchedule(self.lr * (1 - self.lr_decay) ** (round - 1), self.epochs)

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """Make what is sent with the model in the method's first round; ``w`` is the model at that time."""
        return {}

    def survey(self, task: LocalTask) -> State:
        """A pass over the client's data at the model that was sent, before anybody trains.

        The cohort's average of what it returns is sent to the same clients as ``task.surveyed``.
        """
        return {}

    def train(self, task: LocalTask) -> LocalUpdate:
        """Train one client from the model it was sent: E epochs over its samples, see the class."""
        raise NotImplementedError

    def share(self, sent: State, exchange: Exchange) -> State:
        """Make what is sent with the model in the next round."""
        return sent

    def personalise(self, task: LocalTask, kept: ClientState) -> Weights:
        """Return the model that a client would use itself after a round; only asked where ``personal``.

        By default the one that it keeps, and before its first participation the one that everybody has.

        Args:
            task: with ``start`` the model that the round has made for everybody.
            kept: the client's state after the round.
        """
        own = kept.get(self.own_model, task.start)
        assert isinstance(own, Weights)
        return own

    def model_size(self, facts: ModelInfo) -> int:
        """Count the parameters of the model that travel each way: P."""
        return facts.layout.size


@holds_arrays()
@dataclass(frozen=True)
class Cohort:
    """The facts of a round that a server sees besides the models: who took part, with how much, and the weights p.

    Attributes:
        client_ids, samples, steps: [C]; p: [C], sums to 1.
        clients: N; lr: eta_t.
        reach: [C], how far a constant unit gradient would have carried a client: sum_k eta_k without momentum,
            sum_k eta_k (1 - beta^k)/(1 - beta) with it, so that (w - theta_i)/reach_i is a mean of i's gradients. NaN
            with another local optimiser than SGD.
        label_counts: [C, classes], of each client's training samples.
        validator: losses and errors [M] of models [M, P] on the samples that the server names, see
            :attr:`ServerMethod.validates_on`; None where it names none.
        adapters: what a run says of its adapters' rank and scale, as ``run.json`` has it; empty where it says nothing.
        seed: the run's, ``run.seed``; 0 of a run of another program. A server that draws random numbers makes its
            generator of it and of the round, ``np.random.default_rng((cohort.seed, cohort.round))``: then a run that is
            resumed draws the same, and one of another seed does not.
    """

    round: int
    client_ids: np.ndarray
    samples: np.ndarray
    steps: np.ndarray
    p: np.ndarray
    clients: int = 0
    lr: float = 0.0
    reach: np.ndarray = field(default_factory=lambda: np.empty(0))
    label_counts: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.int64))
    validator: Validator | None = None
    adapters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@holds_arrays()
@dataclass(frozen=True)
class Exchange:
    """A round as seen once its clients are back and the server has stepped.

    Attributes:
        start: what was sent; clients: the models [C, P] that came back; global_: what the server made of them.
        message: the clients' messages, averaged as the method's ``message_weighting`` says; float64.
        surveyed: what :meth:`ClientMethod.survey` gave, averaged with p; float64.
    """

    start: Weights
    clients: Weights
    global_: Weights
    cohort: Cohort
    facts: ModelInfo
    message: State = field(default_factory=dict)
    surveyed: State = field(default_factory=dict)


@holds_arrays()
@dataclass(frozen=True)
class Served:
    """A server step's outcome: the next global parameters [P] and the state to keep.

    Attributes:
        p: [C], the weights of the mean that the parameters are, where these are not the cohort's: buffers are averaged
            with them, and a client with weight 0 has no part in the model.
    """

    parameters: np.ndarray
    state: State = field(default_factory=dict)
    p: np.ndarray | None = None


#: functions of servers that a step does not call
_NO_PART_OF_STEP = (
    "resolve",
    "doubts",
    "refuse_adapters",
    "validates_on",
    "needs_all",
    "init",
    "weights",
    "look_ahead",
)


@dataclass(frozen=True)
class ServerMethod(Settings):
    """A rule by which client rows [C, P] become the next row."""

    section: ClassVar[str] = "server"
    about: ClassVar[MethodInfo]  #: its row of the feature table
    #: whether it steps along the clients' mean update alone, so that an average over rounds may come first
    optimiser: ClassVar[bool] = False
    #: whether what it makes depends on the clients' models alone, not on the model that they were sent; a class of
    #: one's own with a step says so itself
    forgets_start: ClassVar[bool] = False
    #: whether it reads how many steps clients took, which a run of another program need not say
    counts_steps: ClassVar[bool] = False
    #: whether it reads how many clients there are in all, alike
    counts_clients: ClassVar[bool] = False
    #: how it goes through clients that are on the disk: ``columns`` where a parameter of the result depends on that
    #: parameter of the clients, of ``start`` and of the state alone, so that blocks of columns do; ``layers`` where it
    #: holds a layer of all clients; ``rows`` where it goes through whole models, one at a time, perhaps many times. A
    #: class of one's own with a step, or with functions that a step calls, says so itself, or counts as ``rows``
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "columns"
    #: whether its formula counts clients alike, whatever their weights p, so that one of weight 0 has a part, too
    unweighted: ClassVar[bool] = False
    #: whether equal candidates are told apart by their place in the cohort, whose order is that of the ids
    ties_by_order: ClassVar[bool] = False
    #: what it equals with which settings, by the other method's name: ``{"fma": {"beta": 0.0}}``; both are trained by
    #: ``check-method``, which gives settings that the other one has to that one, too
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: settings with which it does something in the five rounds of ``check-method``, where its defaults do not
    check_with: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        _describe(cls)
        if not is_somebodys(cls):
            return
        if _has_functions_before(cls, "reads", _NO_PART_OF_STEP):
            cls.reads = "rows"
        if _has_functions_before(cls, "forgets_start", _NO_PART_OF_STEP):
            cls.forgets_start = False

    weighting: Literal["samples", "uniform"] = setting("samples", "weights p: proportional to n_i, or equal")

    def resolve(self, config: Config) -> Self:
        """As :meth:`ClientMethod.resolve`; the configuration's client is settled by then."""
        return self

    def doubts(self, config: Config) -> Iterator[str]:
        """Yield what is said where a run of ``config`` is trained and measured, a sentence each."""
        yield from ()

    def refuse_adapters(self, layout: Layout, adapters: Mapping[str, Any]) -> None:
        """Refuse a model before it is trained whose adapters its step could not aggregate.

        Args:
            adapters: as of :class:`Cohort`.

        Raises:
            FedscopeError: such a model.
        """

    @property
    def validates_on(self) -> tuple[str, int | None] | None:
        """The split on which it compares models, and how many of its samples (None: all); None where it does not."""
        return None

    @property
    def needs_all(self) -> bool:
        """True if it looks at whole models, so that it cannot be given some of their layers alone."""
        return self.reads == "rows" or self.validates_on is not None

    def init(self, w: np.ndarray) -> State:
        """Return the state before its first round; ``w`` [P] is the model at that time."""
        return {}

    def weights(self, samples: np.ndarray) -> np.ndarray:
        """p [C]: n_i / sum n, or 1/C."""
        if self.weighting == "uniform":
            return np.full(len(samples), 1 / len(samples))
        return np.asarray(samples / samples.sum(), dtype=np.float64)

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        """One server step from the clients' models after local training, see the class; in float64, rounded once."""
        raise NotImplementedError

    def look_ahead(self, state: State, w: np.ndarray) -> np.ndarray:
        """Make what is sent in place of the model ``w`` [P] that the next round would start from."""
        return w


@holds_arrays("row")
@dataclass(frozen=True)
class History:
    """The rows that an average over rounds can look back at: ``global``s, by round."""

    row: Callable[[int], Weights]  #: round t's, for 1 <= t < the current round
    facts: ModelInfo  #: of the model


@holds_arrays()
@dataclass(frozen=True)
class Averaged:
    """An average over rounds' outcome: ``averaged``, or None before it exists, and the state to keep."""

    weights: Weights | None
    state: State = field(default_factory=dict)


@dataclass(frozen=True)
class AverageMethod(Settings):
    """A rule for what is averaged over rounds, and whether the next round starts from it."""

    section: ClassVar[str] = "average"
    about: ClassVar[MethodInfo]  #: its row of the feature table
    #: what it equals with which settings, by the other method's name: ``{"fma": {"beta": 0.0}}``; both are trained by
    #: ``check-method``, which gives settings that the other one has to that one, too
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: settings with which it does something in the five rounds of ``check-method``, where its defaults do not
    check_with: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        _describe(cls)

    @property
    def needs_head(self) -> bool:
        """True if it needs to know which layer is the model's head."""
        return False

    @property
    def averages_first(self) -> bool:
        """True if the clients' means are averaged, before the server steps towards that average."""
        return False

    @property
    def models_kept(self) -> int:
        """Return how much room its state takes in a round's file, in models."""
        return 0

    def resolve(self, config: Config) -> Self:
        """As :meth:`ClientMethod.resolve`; the configuration's client and server are settled by then."""
        return self

    def refuse_new(self, config: Config) -> None:
        """Refuse what no run should begin with, though recorded ones may have it; all of ``config`` is settled.

        What :meth:`resolve` refuses can neither be analysed nor resumed where an earlier fedscope recorded it.

        Raises:
            FedscopeError: such a setting.
        """

    def doubts(self, config: Config) -> Iterator[str]:
        """As :meth:`ServerMethod.doubts`."""
        yield from ()

    def explore_pace(self, round: int, pace: LocalSchedule, client: ClientMethod) -> LocalSchedule:
        """Return the pace of round t; by default the client's own."""
        return pace

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        """``averaged`` of round t from its ``global`` and those before it."""
        return Averaged(None)

    def members(self, round: int) -> tuple[int, ...]:
        """Return the rounds whose ``global``s the ``averaged`` of round t is the plain mean of, ascending; () where
        there is no ``averaged`` or it is no such mean.

        What a class says of them counts for its own :meth:`average`: one that overrides that alone has none.
        """
        return ()

    def restarts(self, round: int) -> bool:
        """Check whether round t starts from the previous round's ``averaged``."""
        return False

    def begins(self) -> int | None:
        """Return the first round of which anything recorded differs from a run without an average; None: there is
        none."""
        return 1

    def window_size(self) -> int:
        """Count the last rows that :meth:`average` reads each round; they are held in memory."""
        return 0

    def reaches_back(self) -> int:
        """Count the rounds that :meth:`average` may look back: what a resume must find."""
        return self.window_size()

    def recover(self, round: int, history: History) -> State:
        """Return the state after a round that another method averaged, from the history alone; for branches.

        By default :meth:`average` averages the history, round by round, from where it :meth:`begins`. A method whose
        state is made of a few rows may read those alone.

        Raises:
            FedscopeError: a row that it needs was not recorded.
        """
        return {} if type(self).average is AverageMethod.average else replay_average(self, round, history)
