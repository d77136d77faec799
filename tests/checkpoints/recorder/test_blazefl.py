"""BlazeFL's server handlers, recorded, on stand-ins for its few classes; test_blazefl_long.py has the real ones."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import textwrap
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from refused_recordings import REFUSED

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.recorder.identify_server import Rule
from fedscope.checkpoints.rounds.verify import check_round

# --- stand-ins ---


@dataclass
class Uplink:
    """``blazefl.contrib.fedavg.FedAvgUplinkPackage``."""

    cid: Any
    model_parameters: Any
    data_size: Any
    metadata: Any = None


@dataclass
class Downlink:
    """``blazefl.contrib.fedavg.FedAvgDownlinkPackage``."""

    model_parameters: Any


def serialize(model: Any) -> torch.Tensor:
    """``blazefl.core.serialize_model``."""
    return torch.cat([value.detach().reshape(-1) for value in model.state_dict().values()])


def deserialize(model: Any, flat: torch.Tensor) -> None:
    """``blazefl.core.deserialize_model``."""
    at = 0
    for value in model.state_dict().values():
        value.copy_(flat[at : at + value.numel()].view(value.shape))
        at += value.numel()


class Handler:
    """``blazefl.contrib.fedavg.FedAvgBaseServerHandler``: takes a mean once as many packages are there as clients were
    drawn."""

    def __init__(self, cohorts: Sequence[Sequence[int]], width: int = 3) -> None:
        torch.manual_seed(0)
        self.model: Any = torch.nn.Sequential(torch.nn.Linear(width, 2), torch.nn.BatchNorm1d(2))
        self.cohorts, self.round = cohorts, 0
        self.buffer: list[Any] = []
        self.accuracy = 0.75

    def sample_clients(self) -> list[int]:
        return list(self.cohorts[self.round])

    def downlink_package(self) -> Any:
        return Downlink(serialize(self.model))

    def if_stop(self) -> bool:
        return self.round >= len(self.cohorts)

    def load(self, payload: Any) -> bool:
        self.buffer.append(payload)
        if len(self.buffer) < len(self.cohorts[self.round]):
            return False
        self.global_update(self.buffer)
        self.round += 1
        self.buffer = []
        return True

    def global_update(self, buffer: Any) -> None:
        buffer = list(buffer)
        total = sum(one.data_size for one in buffer)
        mean = torch.zeros_like(buffer[0].model_parameters)
        for one in buffer:
            mean.add_(one.model_parameters, alpha=one.data_size / total)
            one.model_parameters.zero_()  # whatever comes of it
        deserialize(self.model, mean)

    def get_summary(self) -> dict[str, float]:
        return {"server_acc": self.accuracy, "server_loss": 0.5 + self.round}


def trained(handler: Any, cid: int, sent: torch.Tensor) -> Uplink:
    """What a client makes of a model; its counter is a whole number."""
    draw = torch.Generator().manual_seed(100 * handler.round + cid)
    flat = sent + torch.randn(sent.shape, generator=draw)
    flat[-1] = sent[-1].round() + cid
    return Uplink(cid, flat, 10 * (cid + 1))


def play(handler: Any, client: Callable[[Any, int, torch.Tensor], Any] = trained) -> dict[tuple[int, int], np.ndarray]:
    """The loop of BlazeFL's examples; gives what clients sent, by round from 1 and client."""
    sent = {}
    while not handler.if_stop():
        cohort, package = handler.sample_clients(), handler.downlink_package()
        for cid in cohort:
            one = client(handler, cid, package.model_parameters)
            sent[handler.round + 1, cid] = one.model_parameters.clone().numpy()
            if handler.load(one):
                handler.get_summary()
    return sent


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has BlazeFL there, in the version that recording was tested with."""
    monkeypatch.setattr("fedscope.checkpoints.recorder.framework_rounds.version", {"blazefl": "2.0.3"}.__getitem__)


def told(work: Callable[[], Any]) -> list[str]:
    """What is warned of, in order, but for statistics."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    said = [str(one.message) for one in found if issubclass(one.category, FedscopeWarning)]
    return [one for one in said if "statistics were not averaged" not in one]


def recorded(path: Path, handler: Any, client: Callable[..., Any] = trained) -> list[str]:
    """What is warned of as this is played."""
    return told(lambda: play(fedscope.record_blazefl(handler, path), client))


def flat(model: Any) -> np.ndarray:
    """A model in a run as the vector that BlazeFL sends."""
    return np.concatenate([np.asarray(array).reshape(-1) for array in model.arrays().values()]).astype(np.float32)


COHORTS = ((2, 0, 1), (1, 3))


# --- what is recorded ---


def test_clients_models_are_what_they_sent_before_the_handler_makes_anything_of_it(tmp_path: Path) -> None:
    handler = Handler(COHORTS)
    starts = [serialize(handler.model).numpy()]
    assert fedscope.record_blazefl(handler, tmp_path / "run") is handler
    own = handler.global_update

    def global_update(buffer: Any) -> None:
        own(buffer)
        starts.append(serialize(handler.model).numpy())

    handler.global_update = global_update  # type: ignore[method-assign]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        sent = play(handler)
    run = Run.open(tmp_path / "run")
    assert run.info["source"] == "BlazeFL (Handler)"
    assert run.rounds == (1, 2)
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert [entry.name for entry in run.layout.entries] == names
    assert [entry.stored or entry.dtype for entry in run.layout.entries] == ["float32"] * 6 + ["int64"]
    for t, cohort in enumerate(COHORTS, 1):
        round_ = run.round(t)
        assert check_round(round_).faults == ()
        assert round_.client_ids.tolist() == sorted(cohort)
        assert round_.client_samples.tolist() == [10 * (k + 1) for k in sorted(cohort)]
        for k in cohort:
            assert flat(round_.client(k)).tobytes() == sent[t, k].tobytes()
        assert flat(round_.read("start")).tobytes() == starts[t - 1].tobytes()
        assert flat(round_.read("global")).tobytes() == starts[t].tobytes()
    metrics = run.metrics()
    np.testing.assert_array_equal(metrics["server_rule"], [Rule.MEAN] * 2)
    np.testing.assert_array_equal(metrics["test_loss"], [1.5, 2.5])
    np.testing.assert_array_equal(metrics["test_error"], [0.25, 0.25])
    fedscope.Recorder(tmp_path / "run", resume=True).close()  # the folder is given back


def test_packages_of_names_in_slots_without_numbers_of_samples(tmp_path: Path) -> None:
    @dataclass(slots=True)
    class Named:
        weights: dict[str, torch.Tensor]
        cid: int = -1

    class Plain(Handler):
        def downlink_package(self) -> Any:
            return Named(self.model.state_dict())  # no copy

        def global_update(self, buffer: Any) -> None:
            rows = [torch.cat([value.reshape(-1) for value in one.weights.values()]) for one in buffer]
            deserialize(self.model, torch.stack(rows).mean(0))

    handler = Plain([(4, 7)])

    def run() -> None:
        fedscope.record_blazefl(handler, tmp_path / "run")
        sent = handler.downlink_package()
        before.append(serialize(handler.model).numpy())
        for cid in handler.sample_clients():
            handler.load(Named({name: value + cid for name, value in sent.weights.items()}, cid))
        handler.if_stop()

    before: list[np.ndarray] = []
    assert told(run) == []
    round_ = Run.open(tmp_path / "run").round(1)
    assert round_.weights.tolist() == [0.5, 0.5]
    with pytest.raises(FedscopeError, match="client_samples"):
        round_.client_samples  # noqa: B018
    assert flat(round_.read("start")).tobytes() == before[0].tobytes()
    for k in (4, 7):
        assert flat(round_.client(k)).tobytes() == (before[0] + np.float32(k)).tobytes()


def test_a_part_of_the_models_size_is_the_model_whatever_it_is_called(tmp_path: Path) -> None:
    @dataclass
    class Own:
        cid: int
        w: torch.Tensor
        data_size: float
        logits: torch.Tensor

        @property
        def model_parameters(self) -> torch.Tensor:  # no part of the package, but what this handler reads
            return self.w

    def client(handler: Any, cid: int, sent: torch.Tensor) -> Any:
        return Own(cid, trained(handler, cid, sent).model_parameters, 0.5 + cid, torch.zeros(3))

    assert recorded(tmp_path / "run", Handler([(0, 1)]), client) == []
    round_ = Run.open(tmp_path / "run").round(1)
    assert round_.weights.tolist() == [0.25, 0.75]  # what weighs need not be a count
    assert not round_.has("client_samples")


def test_half_precision_is_recorded_as_clients_load_it_and_what_has_diverged_too(tmp_path: Path) -> None:
    class Half(Handler):
        def downlink_package(self) -> Any:
            return Downlink(serialize(self.model).half())

    def client(handler: Any, cid: int, sent: torch.Tensor) -> Any:
        one = trained(handler, cid, sent.float())
        one.model_parameters[0] = float("nan")
        return one

    handler = Half([(0, 1), (0, 1)])
    first = serialize(handler.model).half().float().numpy()
    said = recorded(tmp_path / "run", handler, client)
    assert len(said) == 2
    assert all("has diverged" in one for one in said)
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2)
    assert flat(run.round(1).read("start")).tobytes() == first.tobytes()
    assert np.isnan(run.round(2).read("start").arrays()["0.weight"].flat[0])


def test_a_counter_that_is_no_whole_number_is_told(tmp_path: Path) -> None:
    def client(handler: Any, cid: int, sent: torch.Tensor) -> Any:
        one = trained(handler, cid, sent)
        one.model_parameters[-1] += cid / 2
        return one

    (sentence,) = recorded(tmp_path / "run", Handler([(0, 1)]), client)
    assert sentence == (
        f"{tmp_path}/run: client 1 sends 1.num_batches_tracked in float32, clients of the first round in int64, as "
        "which it is recorded"
    )


def test_bfloat16_twice_the_same(tmp_path: Path) -> None:
    handler = Handler([(1, 1, 2)])
    handler.model = torch.nn.Linear(3, 2).bfloat16()

    def client(handler: Any, cid: int, sent: torch.Tensor) -> Any:
        return Uplink(cid, sent + cid, 1)

    def play_() -> None:
        fedscope.record_blazefl(handler, tmp_path / "run")
        sent = handler.downlink_package().model_parameters
        for cid in handler.sample_clients():
            handler.load(client(handler, cid, sent))
        handler.if_stop()

    assert told(play_) == []
    run = Run.open(tmp_path / "run")
    np.testing.assert_allclose(run.round(1).weights, [2 / 3, 1 / 3])
    assert {entry.stored or entry.dtype for entry in run.layout.entries} == {"bfloat16"}


def test_evaluations_before_all_rounds_and_without_any(tmp_path: Path) -> None:
    handler = fedscope.record_blazefl(Handler([(0, 1)]), tmp_path / "run")
    handler.get_summary()
    assert told(lambda: play(handler)) == []
    assert Run.open(tmp_path / "run").metrics()["test_loss"].tolist() == [1.5]

    class Silent(Handler):
        get_summary = None  # type: ignore[assignment]

    silent: Any = fedscope.record_blazefl(Silent([(0, 1)]), tmp_path / "silent")
    sent = silent.downlink_package().model_parameters
    for cid in silent.sample_clients():
        silent.load(trained(silent, cid, sent))
    silent.recorder._background.wait()
    assert silent.recorder.rounds == 1, "nothing is held back where no evaluation can come"
    silent.recorder.close()


def test_an_accuracy_in_per_cent_is_told(tmp_path: Path) -> None:
    handler = Handler([(0, 1)])
    handler.accuracy = 75.0
    (sentence,) = recorded(tmp_path / "run", handler)
    assert sentence == (
        f"{tmp_path}/run: BlazeFL's evaluation gives accuracy = 75, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share"
    )
    assert Run.open(tmp_path / "run").metrics()["test_loss"].tolist() == [1.5]


def test_rounds_behind_the_end_of_the_training_are_told(tmp_path: Path) -> None:
    """The first of them was lost without a word."""
    handler = Handler([(0, 1), (0, 1)])
    assert recorded(tmp_path / "run", handler) == []
    # a package with the last model, as for a last test, is no round
    assert told(handler.downlink_package) == []

    def one_more() -> None:
        handler.cohorts = [*handler.cohorts, (0, 1)]
        sent = handler.downlink_package().model_parameters
        for cid in (0, 1):
            handler.load(trained(handler, cid, sent))

    assert told(one_more) == [
        f"{tmp_path}/run: the run is closed, which if_stop does, so no further round of BlazeFL is recorded; before "
        "the next one call fedscope.record_blazefl again, with resume=True to go on with this run, or with another path"
    ]
    assert told(one_more) == []
    assert Run.open(tmp_path / "run").rounds == (1, 2)
    handler = Handler([])
    fedscope.record_blazefl(handler, tmp_path / "by-hand").recorder.close()
    assert told(one_more) == [
        f"{tmp_path}/by-hand: the run is closed, which recorder.close() does, so no further round of BlazeFL is "
        "recorded; before the next one call fedscope.record_blazefl again, with resume=True to go on with this run, or "
        "with another path"
    ]


@pytest.mark.parametrize("layers", [(5_000,) * 8, (40_000,)])
def test_two_rounds_of_clients_are_held_at_most(
    layers: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # copies as numpy makes them, which are counted; what clients and the handler hold is torch's, and is not
    place = "fedscope.checkpoints.recorder.framework_rounds._copied"
    monkeypatch.setattr(place, lambda name, value: value.detach().numpy().copy())
    handler: Any = Handler([range(20)] * 4)
    handler.model = torch.nn.Sequential(*(torch.nn.Linear(width, 5) for width in layers))
    whole = 20 * serialize(handler.model).numel() * 4
    fedscope.record_blazefl(handler, tmp_path / "run")
    handler.recorder._looks = False  # for the server's rule, which takes memory by numbers, not by clients
    tracemalloc.start()
    try:
        while not handler.if_stop():
            package = handler.downlink_package()
            for cid in handler.sample_clients():
                if handler.load(Uplink(cid, package.model_parameters + cid, 1)):
                    handler.get_summary()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert whole < peak <= 2 * whole, peak / whole
    arrays = Run.open(tmp_path / "run").round(4).client(19).arrays()
    assert arrays[f"{len(layers) - 1}.weight"].size == 5 * layers[0]


# --- clients that answer twice, late or never ---


def test_a_client_that_answers_twice(tmp_path: Path) -> None:
    def same(handler: Any, cid: int, sent: torch.Tensor) -> Any:
        return Uplink(cid, sent + cid, 10)

    assert recorded(tmp_path / "same", Handler([(1, 2, 1)]), same) == []
    assert Run.open(tmp_path / "same").round(1).weights.tolist() == [2 / 3, 1 / 3]
    places = iter(range(10))

    def other(handler: Any, cid: int, sent: torch.Tensor) -> Any:
        return Uplink(cid, sent + next(places), 10)

    assert recorded(tmp_path / "other", Handler([(1, 2, 1)]), other) == [
        f"{tmp_path}/other: client 1 is in one round twice, with two models; the run holds the first, so that global "
        "is not the mean of the clients there; have BlazeFL take each once"
    ]
    assert Run.open(tmp_path / "other").round(1).client_ids.tolist() == [1, 2]


def test_a_client_that_is_silent_and_one_that_answers_too_late(tmp_path: Path) -> None:
    handler = fedscope.record_blazefl(Handler([(0, 1, 2), (3, 4), (5, 6)]), tmp_path / "run")

    def run() -> None:
        sent = handler.downlink_package().model_parameters
        handler.sample_clients()
        late = trained(handler, 2, sent)
        handler.buffer = [trained(handler, k, sent) for k in (0, 1)]
        handler.global_update(handler.buffer)  # which does not wait for it
        handler.round, handler.buffer = 1, []
        handler.load(late)
        sent = handler.downlink_package().model_parameters
        handler.sample_clients()
        handler.load(trained(handler, 3, sent))
        sent = handler.downlink_package().model_parameters
        handler.sample_clients()
        for k in (5, 6):
            handler.load(trained(handler, k, sent))
        handler.if_stop()

    where = f"{tmp_path}/run"
    assert told(run) == [
        f"{where}: sample_clients drew client 2 for round 0 of BlazeFL, and no model of it was averaged; the run has "
        "the round without it",
        f"{where}: client 2 answers an earlier round in round 1 of BlazeFL, and its model is averaged all the same; "
        "the run leaves it out, since it began from another model",
    ]
    run_ = Run.open(tmp_path / "run")
    assert [run_.round(t).client_ids.tolist() for t in run_.rounds] == [[0, 1], [3], [5, 6]]


def test_a_package_that_was_left_over_is_late_in_the_next_round(tmp_path: Path) -> None:
    handler = fedscope.record_blazefl(Handler([(0, 1), (0, 1)]), tmp_path / "run")

    def run() -> None:
        sent = handler.downlink_package().model_parameters
        early = trained(handler, 5, sent)
        handler.round = -1  # so that nothing is made of it at once
        handler.cohorts = [(0, 1), (0, 1), range(99)]
        handler.load(early)
        handler.round = 0
        kept, handler.buffer = handler.buffer, []
        for k in (0, 1):
            handler.load(trained(handler, k, sent))
        handler.buffer = kept
        sent = handler.downlink_package().model_parameters
        handler.load(trained(handler, 1, sent))
        handler.recorder.close()

    (sentence,) = told(run)
    assert "client 5 answers an earlier round in round 1 of BlazeFL" in sentence
    run_ = Run.open(tmp_path / "run")
    assert [run_.round(t).client_ids.tolist() for t in run_.rounds] == [[0, 1], [1]]


# --- what cannot be recorded ---


NOT_RECORDED = "round 0 of BlazeFL is not recorded, so later ones have lower numbers in the run: "


@pytest.mark.parametrize(
    ("package", "message"),
    [
        (
            lambda cid, flat: SimpleNamespace(cid=cid, soft_labels=flat[:3], data_size=1),
            "SimpleNamespace has no model: none of its parts (cid, soft_labels, data_size) has the 17 numbers of the "
            "handler's model; send one as model_parameters, as only packages with models can be recorded",
        ),
        (
            lambda cid, flat: Uplink(cid, flat[:-1], 1),
            "model_parameters of Uplink is a tensor of 16 numbers, and the handler's model has 17 numbers; send its "
            "whole state_dict, as serialize_model(model) makes it",
        ),
        (
            lambda cid, flat: Uplink(cid, "a path", 1),
            "model_parameters of Uplink is of type str, and the handler's model has 17 numbers; send its whole "
            "state_dict, as serialize_model(model) makes it",
        ),
        (
            lambda cid, flat: {"cid": cid, "w": flat, "control": flat},
            "dict has several parts of the model's size (w, control); call the model model_parameters",
        ),
        (
            lambda cid, flat: Downlink(flat),
            "Downlink has no cid, so it is not known whose model it is; give its clients' numbers as cid",
        ),
        (
            lambda cid, flat: Uplink("site-1", flat, 1),
            "cid is 'site-1'; give whole numbers from 0 on, as sample_clients does",
        ),
        (lambda cid, flat: Uplink(-1, flat, 1), "cid is -1; give whole numbers from 0 on, as sample_clients does"),
    ],
)
def test_packages_that_cannot_be_recorded(package: Callable[..., Any], message: str, tmp_path: Path) -> None:
    class Anything(Handler):
        def global_update(self, buffer: Any) -> None:
            self.updates += 1

        updates = 0

    handler = fedscope.record_blazefl(Anything([(0, 1)]), tmp_path / "run")

    def run() -> None:
        flat_ = handler.downlink_package().model_parameters
        for cid in handler.sample_clients():
            handler.load(package(cid, flat_))
        handler.if_stop()

    assert told(run) == [f"{tmp_path}/run: {NOT_RECORDED}{message}"]
    assert (handler.updates, handler.round) == (1, 1)
    assert not (tmp_path / "run" / "run.json").exists()


def test_handlers_whose_model_is_not_what_is_sent(tmp_path: Path) -> None:
    class Modelless(Handler):
        def downlink_package(self) -> Any:
            self.model = None
            return Downlink(torch.zeros(17))

    handler = fedscope.record_blazefl(Modelless([(0,)]), tmp_path / "none")
    assert told(handler.downlink_package) == [
        f"{tmp_path}/none: {NOT_RECORDED}Modelless has no module as its model, from which a run takes the names of "
        "tensors; keep the model that is sent in handler.model"
    ]

    class Distils(Handler):
        def downlink_package(self) -> Any:
            return SimpleNamespace(soft_labels=torch.zeros(40), indices=[1, 2])

    handler = fedscope.record_blazefl(Distils([(0, 1)]), tmp_path / "distils")

    def distil() -> None:
        handler.downlink_package()
        handler.global_update([trained(handler, k, torch.zeros(17)) for k in (0, 1)])

    assert told(distil) == [
        f"{tmp_path}/distils: {NOT_RECORDED}SimpleNamespace has no model: none of its parts (soft_labels, indices) has "
        "the 17 numbers of the handler's model; send one as model_parameters, as only packages with models can be "
        "recorded"
    ]

    class Elsewhere(Handler):
        def downlink_package(self) -> Any:
            return Downlink(serialize(self.model) + 1)

    (sentence,) = recorded(tmp_path / "other", Elsewhere([(0, 1)]))
    assert sentence == (
        f"{tmp_path}/other: {NOT_RECORDED}downlink_package sends another model than handler.model, so it is not known "
        "which one global_update changes; keep the model that is sent in handler.model"
    )


def test_a_cohort_that_may_be_read_but_once_is_left_to_the_loop(tmp_path: Path) -> None:
    class Lazily(Handler):
        def sample_clients(self) -> Any:
            return iter(super().sample_clients())

    assert recorded(tmp_path / "run", Lazily([(2, 0)])) == []
    assert Run.open(tmp_path / "run").round(1).client_ids.tolist() == [0, 2]


def test_several_starts_in_one_round_are_told(tmp_path: Path) -> None:
    handler = fedscope.record_blazefl(Handler([(0, 1)]), tmp_path / "run")
    assert told(lambda: [handler.downlink_package() for _ in range(3)]) == []
    with torch.no_grad():
        handler.model[0].weight += 1
    assert told(handler.downlink_package) == [
        f"{tmp_path}/run: downlink_package gives several models in round 0 of BlazeFL; the run has the first as start, "
        "and clients may have begun from another; record rounds without one start with fedscope.Recorder"
    ]
    handler.recorder.close()


def test_calls_in_another_order_are_told_and_the_next_round_is_recorded(tmp_path: Path) -> None:
    handler = fedscope.record_blazefl(Handler([(0, 1)] * 4), tmp_path / "run")
    sent = handler.downlink_package().model_parameters

    def cohort() -> list[Any]:
        return [trained(handler, k, sent) for k in (0, 1)]

    assert told(lambda: handler.global_update(cohort())) == []
    handler.round = 1
    assert told(lambda: handler.global_update(cohort())) == [
        f"{tmp_path}/run: round 1 of BlazeFL is not recorded, so later ones have lower numbers in the run: "
        "downlink_package was not called before global_update, so it is not known which model was sent; call it once a "
        "round"
    ]
    handler.downlink_package()
    assert told(lambda: handler.global_update(iter(cohort()))) == [
        f"{tmp_path}/run: round 1 of BlazeFL is not recorded, so later ones have lower numbers in the run: "
        "global_update is given a list_iterator, which may be read but once; give a list"
    ]
    handler.downlink_package()
    assert told(lambda: handler.global_update(cohort())) == []
    handler.recorder.close()
    assert Run.open(tmp_path / "run").rounds == (1, 2)


def test_a_handler_that_makes_no_mean_where_recording_looks(tmp_path: Path) -> None:
    class Inside(Handler):
        def load(self, payload: Any) -> bool:
            self.round += 1
            return True

    assert recorded(tmp_path / "run", Inside([(0,)])) == [
        f"{tmp_path}/run: load says that a round of BlazeFL is over, and global_update was not called, so nothing is "
        "recorded; have load call self.global_update(buffer)"
    ]

    class Waits(Handler):
        def load(self, payload: Any) -> bool:
            self.round += 1
            return False

    assert recorded(tmp_path / "waits", Waits([(0,)])) == [
        f"{tmp_path}/waits: clients sent models, and no round of BlazeFL ended; have load call "
        "self.global_update(buffer) once all are there, as FedAvgBaseServerHandler does"
    ]


def test_a_handler_that_fails_fails_as_before_and_its_rounds_are_complete(tmp_path: Path) -> None:
    class Fails(Handler):
        fails = False

        def global_update(self, buffer: Any) -> None:
            if self.fails:
                raise ZeroDivisionError("the handler fails")
            super().global_update(buffer)

    handler = fedscope.record_blazefl(Fails([(0, 1)] * 3), tmp_path / "run")
    sent = handler.downlink_package().model_parameters
    handler.global_update([trained(handler, k, sent) for k in (0, 1)])
    handler.fails = True
    sent = handler.downlink_package().model_parameters
    with pytest.raises(ZeroDivisionError, match=r"^the handler fails$"):
        handler.global_update([trained(handler, k, sent) for k in (0, 1)])
    handler.fails = False
    assert told(lambda: handler.global_update([trained(handler, k, sent) for k in (2, 3)])) == []
    handler.recorder.close()
    run = Run.open(tmp_path / "run")
    assert [run.round(t).client_ids.tolist() for t in run.rounds] == [[0, 1], [2, 3]]


def test_recording_again_ends_the_former_recording(tmp_path: Path) -> None:
    handler = Handler([(0, 1)])
    fedscope.record_blazefl(handler, tmp_path / "former")
    fedscope.record_blazefl(handler, tmp_path / "run")
    assert told(lambda: play(handler)) == []
    assert Run.open(tmp_path / "run").rounds == (1,)
    assert not (tmp_path / "former" / "run.json").exists()


@pytest.mark.parametrize(("name", "about", "message"), REFUSED)
def test_a_recording_that_is_refused_leaves_the_former_one(
    name: str, about: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """The former one had ended by then, so that the rest of the training was lost."""
    (tmp_path / "taken").write_text("mine")
    handler: Any = Handler([(0, 1), (2, 3), (0, 2)])

    def client(handler: Any, cid: int, sent: torch.Tensor) -> Uplink:
        if cid == 3:
            handler.recorder.flush()
            with pytest.raises(FedscopeError, match=message):
                fedscope.record_blazefl(handler, tmp_path / name, **about)
        return trained(handler, cid, sent)

    assert recorded(tmp_path / "run", handler, client) == []
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)


def test_a_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    assert recorded(tmp_path / "run", Handler([(0, 1)])) == []
    with pytest.raises(FedscopeError, match="holds a run with 1 round"):
        fedscope.record_blazefl(Handler([(0, 1)]), tmp_path / "run")
    again = fedscope.record_blazefl(Handler([(0, 1)]), tmp_path / "run", resume=True)
    assert told(lambda: play(again)) == []
    assert Run.open(tmp_path / "run").rounds == (1, 2)


@pytest.mark.parametrize(
    ("handler", "settings", "message"),
    [
        (Handler, {}, "Handler is a class; give an instance, as in record_blazefl(Handler(...), ...)"),
        (
            Downlink(0),
            {},
            "Downlink is no server handler of BlazeFL: it has no downlink_package; give one, as in "
            "record_blazefl(FedAvgBaseServerHandler(...), ...)",
        ),
        (
            SimpleNamespace(handler=Handler([])),
            {},
            "SimpleNamespace is no server handler of BlazeFL: it has no downlink_package; give one, as in "
            "record_blazefl(pipeline.handler, ...)",
        ),
        (Handler([]), {"model": 3}, "a model was given as int; give a module"),
        (Handler([]), {"partition": {0: [1]}}, "partition= needs labels="),
        (Handler([]), {"keep": "some"}, 'keep = "some" is not a recording policy'),
    ],
)
def test_what_is_no_handler_or_no_model_is_refused(
    handler: Any, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FedscopeError) as raised:
        fedscope.record_blazefl(handler, tmp_path / "run", **settings)
    assert message in str(raised.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_another_version_is_told_and_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "fedscope.checkpoints.recorder.framework_rounds.version"
    monkeypatch.setattr(place, {"blazefl": "3.0.0"}.__getitem__)
    assert told(lambda: fedscope.record_blazefl(Handler([]), tmp_path / "run")) == [
        "blazefl 3.0.0 is installed, and recording was tested with 2.0.3; look at the run with fedscope ls, or pip "
        "install blazefl==2.0.3"
    ]

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(place, missing)
    with pytest.raises(FedscopeError, match=r"^blazefl is not installed; pip install blazefl==2\.0\.3$"):
        fedscope.record_blazefl(Handler([]), tmp_path / "run")


def test_recording_needs_neither_blazefl_nor_torch() -> None:
    code = """
        import sys
        sys.modules["blazefl"] = sys.modules["torch"] = None
        import fedscope
        import fedscope.checkpoints.recorder.blazefl.watch
        fedscope.record_blazefl
    """
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code)], check=True)


def test_where_no_python_is_new_enough_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "benchmarks")
    import against_frameworks as frameworks

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    future = frameworks.Peer("Future 1", "future==1", (3, 90))
    with pytest.raises(frameworks.NotHere, match=r"^it needs Python 3\.90 or newer, and neither"):
        frameworks.python_for(future)
    for folder, answers in (("a/bin", "exit 1"), ("b/bin", "echo '3.91 (here)'")):
        (tmp_path / "versions" / folder).mkdir(parents=True)
        python = tmp_path / "versions" / folder / "python3.91"
        python.write_text(f"#!/bin/sh\n{answers}\n")
        python.chmod(0o755)
    assert frameworks.python_for(future) == (python, "3.91 (here)")
    assert frameworks.python_for(frameworks.PFL) == (Path(sys.executable), sys.version)
