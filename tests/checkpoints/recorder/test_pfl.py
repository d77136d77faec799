"""pfl's algorithms, recorded, on stand-ins for its few classes; test_pfl_long.py has the real ones."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import textwrap
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused_recordings import REFUSED

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.rounds.verify import check_round

Arrays = dict[str, np.ndarray]


# --- stand-ins ---


class Model:
    """``pfl.model.base.StatefulModel`` of one vector and a counter."""

    def __init__(self) -> None:
        self.arrays: Arrays = {"w": np.zeros(5, np.float32), "n.num_batches_tracked": np.array(0, np.int64)}

    def get_parameters(self, placeholders: Any = None) -> Arrays:
        return self.arrays  # not a copy: pfl's are reused


class Statistics:
    """``pfl.stats.WeightedStatistics``."""

    def __init__(self, w: np.ndarray) -> None:
        self.w, self.weight = w, 1.0


class Aggregator:
    """``pfl.aggregate.base.SumAggregator``."""

    def accumulate(self, *, accumulated: Any, user_stats: Any) -> Any:
        if accumulated is None:
            return user_stats
        accumulated.w, accumulated.weight = accumulated.w + user_stats.w, accumulated.weight + user_stats.weight
        return accumulated


class User:
    """``pfl.data.dataset.Dataset``."""

    def __init__(self, user_id: Any, samples: int, moves: float | None = None) -> None:
        self.user_id, self.samples = user_id, samples
        self.moves = float(samples) if moves is None else moves

    def __len__(self) -> int:
        return self.samples


class WeightByDatapoints:
    """``pfl.aggregate.weighting.WeightByDatapoints``."""

    def postprocess(self, stats: Any, user: User) -> None:
        stats.w, stats.weight = stats.w * len(user) / stats.weight, float(len(user))


class NormClipping(WeightByDatapoints):
    """A mechanism whose base is called so."""

    def postprocess(self, stats: Any, user: User) -> None: ...


NormClipping.__name__ = "LocalPrivacyMechanism"


class Evaluates:
    """``pfl.callback.central_evaluation.CentralEvaluationCallback``."""

    accuracy = 0.75

    def after_central_iteration(self, aggregate_metrics: Any, model: Model, *, central_iteration: int) -> Any:
        found = {"Central val | loss": 0.5 + central_iteration, "Central val | accuracy": self.accuracy}
        return False, SimpleNamespace(to_simple_dict=lambda: {} if central_iteration == 0 else found)


class Averaging:
    """``pfl.algorithm.federated_averaging.FederatedAveraging``, with pfl's order of calls."""

    fails_in = -1

    def train_one_user(self, initial: Arrays, model: Model, user_dataset: User, central_context: Any) -> Any:
        model.arrays["w"][:] = initial["w"] + np.float32(user_dataset.moves)
        model.arrays["n.num_batches_tracked"] += 1
        return Statistics(model.arrays["w"] - initial["w"]), "metrics"

    def process_aggregated_statistics_from_all_contexts(self, pairs: Any, metrics: Any, model: Model) -> Any:
        if metrics == self.fails_in:
            raise ZeroDivisionError("the algorithm fails")
        for stats in pairs:
            model.arrays["w"] += stats.w / np.float32(stats.weight)
        return model, "metrics"

    def run(
        self,
        algorithm_params: Any,
        backend: Any,
        model: Model,
        model_train_params: Any = None,
        model_eval_params: Any = None,
        callbacks: Any = None,
        *,
        send_metrics_to_platform: bool = True,
    ) -> Model:
        for number, cohort in enumerate(algorithm_params):
            total = None
            for population, user in cohort:
                context = SimpleNamespace(
                    population=SimpleNamespace(value=population), current_central_iteration=number
                )
                before = {name: value.copy() for name, value in model.arrays.items()}
                stats, _ = self.train_one_user(before, model, user, context)
                model.arrays["w"][:] = before["w"]  # in place, as pfl does
                for one in backend._postprocessors:
                    one.postprocess(stats, user)
                if population == "train":
                    total = backend._aggregator.accumulate(accumulated=total, user_stats=stats)
            pairs = () if total is None else (total,)
            model, _ = self.process_aggregated_statistics_from_all_contexts(pairs, number, model)
            for callback in callbacks or ():
                callback.after_central_iteration({}, model, central_iteration=number)
        return model


def backend(*postprocessors: Any) -> Any:
    return SimpleNamespace(_postprocessors=list(postprocessors), _aggregator=Aggregator())


def training(*users: User) -> list[tuple[str, User]]:
    return [("train", user) for user in users]


THREE = (User("user-3", 30), User("user-1", 10), User("user-2", 20))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has pfl there, in the version that recording was tested with, in one process."""
    monkeypatch.setattr("fedscope.checkpoints.recorder.framework_rounds.version", {"pfl": "0.6.0"}.__getitem__)
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def told(work: Callable[[], Any]) -> list[str]:
    """What is warned of, in order, but for statistics, which pfl does not average."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    said = [str(one.message) for one in found if issubclass(one.category, FedscopeWarning)]
    return [one for one in said if "statistics were not averaged" not in one]


def recorded(path: Path, cohorts: Sequence[Any], *postprocessors: Any, **about: Any) -> list[str]:
    """What is warned of as this is played."""
    algorithm = about.pop("algorithm", None) or Averaging()
    callbacks = about.pop("callbacks", None)

    def play() -> None:
        given = fedscope.record_pfl(algorithm, path, **about)
        assert given is algorithm
        algorithm.run(cohorts, backend(*postprocessors), Model(), callbacks=callbacks)

    return told(play)


# --- what is recorded ---


def test_users_models_are_what_local_training_ended_with_before_pfl_puts_the_servers_back(tmp_path: Path) -> None:
    model, given = Model(), backend(WeightByDatapoints())
    algorithm = fedscope.record_pfl(Averaging(), tmp_path / "run")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*statistics were not averaged")
        warnings.filterwarnings("error", category=FedscopeWarning)
        end = algorithm.run([training(*THREE), training(*THREE[:2])], given, model)
    assert end is model
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2)
    assert run.info["source"] == "pfl (Averaging)"
    assert [entry.stored or entry.dtype for entry in run.layout.entries] == ["float32", "int64"]
    start = np.float32(0)
    for t, users in ((1, THREE), (2, THREE[:2])):
        round_ = run.round(t)
        assert check_round(round_).faults == ()
        assert round_.client_ids.tolist() == sorted(int(user.user_id[-1]) for user in users)
        assert round_.client_samples.tolist() == sorted(len(user) for user in users)
        assert round_.read("start").arrays()["w"].tolist() == [start] * 5
        for user in users:
            found = round_.client(int(user.user_id[-1])).arrays()["w"]
            assert found.astype(np.float32).tobytes() == np.full(5, start + np.float32(user.moves)).tobytes()
        mean = np.average([user.moves for user in users], weights=[len(user) for user in users])
        start = np.float32(start + np.float32(mean))
        assert round_.read("global").arrays()["w"][0] == pytest.approx(start, rel=1e-6)
        start = np.float32(round_.read("global").arrays()["w"][0])
    # the counter of the last user stays in the module
    assert [int(run.round(1).client(k).arrays()["n.num_batches_tracked"]) for k in (3, 1, 2)] == [1, 2, 3]
    assert "accumulate" not in vars(given._aggregator), "the aggregator has its own call back"
    fedscope.Recorder(tmp_path / "run", resume=True).close()  # the folder is given back


@pytest.mark.parametrize("keep", ["all", "sample:5", "none"])
def test_memory_of_two_rounds_of_users_at_most(keep: str, tmp_path: Path) -> None:
    """Also of models of one tensor, which is given up user by user as it is written."""
    users, size = 20, 200_000

    def peak(algorithm: Averaging, rounds: int) -> int:
        model = Model()
        model.arrays["w"] = np.zeros(size, np.float32)
        cohort = training(*(User(k, 10, moves=k) for k in range(users)))
        tracemalloc.start()
        try:
            algorithm.run([cohort] * rounds, backend(), model)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peak(fedscope.record_pfl(Averaging(), tmp_path / "first"), 1)  # loads what is needed
        added = peak(fedscope.record_pfl(Averaging(), tmp_path / "run", keep=keep), 3) - peak(Averaging(), 3)
    whole = users * size * 4
    assert whole < added <= 2 * whole
    last = Run.open(tmp_path / "run").round(3)
    there = last.client_ids if last.has_clients else last.sampled_ids if last.has_sample else []
    assert len(there) == {"all": 20, "sample:5": 5, "none": 0}[keep]


def test_without_weighting_all_weigh_the_same(tmp_path: Path) -> None:
    assert recorded(tmp_path / "run", [training(*THREE)]) == []
    round_ = Run.open(tmp_path / "run").round(1)
    assert round_.weights.tolist() == [1 / 3] * 3
    with pytest.raises(FedscopeError, match="client_samples"):
        round_.client_samples  # noqa: B018


def test_users_of_validation_are_no_clients(tmp_path: Path) -> None:
    cohort = [*training(*THREE[:2]), ("val", User("user-9", 5))]
    assert recorded(tmp_path / "run", [cohort]) == []
    assert Run.open(tmp_path / "run").round(1).client_ids.tolist() == [1, 3]


def test_a_user_that_is_drawn_twice(tmp_path: Path) -> None:
    same = training(User("user-1", 10), User("user-2", 10))
    deterministic = [*same, *training(User("user-1", 10))]

    class Still(Averaging):
        def train_one_user(self, initial: Arrays, model: Model, user_dataset: User, central_context: Any) -> Any:
            made = super().train_one_user(initial, model, user_dataset, central_context)
            model.arrays["n.num_batches_tracked"] *= 0
            return made

    assert recorded(tmp_path / "same", [deterministic], WeightByDatapoints(), algorithm=Still()) == []
    assert Run.open(tmp_path / "same").round(1).weights.tolist() == [2 / 3, 1 / 3]
    other = [*same, *training(User("user-1", 10, moves=3.0))]
    assert recorded(tmp_path / "other", [other], WeightByDatapoints()) == [
        f"{tmp_path}/other: client user-1 is in one round twice, with two models; the run holds the first, so that "
        "global is not the mean of the clients there; have pfl take each once"
    ]
    assert Run.open(tmp_path / "other").round(1).client(1).arrays()["w"][0] == 10


def test_users_without_a_name_are_numbered_by_their_place(tmp_path: Path) -> None:
    assert recorded(tmp_path / "run", [training(User(None, 3), User(None, 4))]) == [
        f"{tmp_path}/run: data sets have no user_id, so users are numbered by their place in the round, and client 3 "
        "is another user in each; give Dataset(..., user_id=...)"
    ]
    assert Run.open(tmp_path / "run").round(1).client_ids.tolist() == [0, 1]


def test_names_as_they_are_given(tmp_path: Path) -> None:
    cohort = training(User("b", 3), User("a", 4))
    assert recorded(tmp_path / "run", [cohort], clients=["a", "c", "b"]) == []
    run = Run.open(tmp_path / "run")
    assert run.round(1).client(2).arrays()["w"][0] == 3
    assert run.info["client_names"] == {"0": "a", "1": "c", "2": "b"}


def test_pfls_own_evaluation_is_in_its_round(tmp_path: Path) -> None:
    callback = Evaluates()
    assert recorded(tmp_path / "run", [training(*THREE)] * 3, callbacks=[callback]) == []
    metrics = Run.open(tmp_path / "run").metrics()
    np.testing.assert_array_equal(metrics["test_loss"], [np.nan, 1.5, 2.5])
    np.testing.assert_array_equal(metrics["test_error"], [np.nan, 0.25, 0.25])
    assert "after_central_iteration" not in vars(callback)
    callback.accuracy = 75.0
    (sentence,) = recorded(tmp_path / "percent", [training(*THREE)] * 2, callbacks=[callback])
    assert sentence == (
        f"{tmp_path}/percent: pfl's evaluation gives accuracy = 75, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share"
    )


def test_callbacks_on_validation_data_replace_no_test_number(tmp_path: Path) -> None:
    """The last callback's numbers were taken, whatever it measured on."""

    class OnTest(Evaluates):
        def after_central_iteration(self, aggregate_metrics: Any, model: Model, *, central_iteration: int) -> Any:
            found = {"Central test | loss": 2.0, "Central test | accuracy": 0.5}
            return False, SimpleNamespace(to_simple_dict=lambda: found)

    for name, callbacks in (("after", [OnTest(), Evaluates()]), ("before", [Evaluates(), OnTest()])):
        assert recorded(tmp_path / name, [training(*THREE)] * 2, callbacks=callbacks) == []
        metrics = Run.open(tmp_path / name).metrics()
        assert (metrics["test_loss"].tolist(), metrics["test_error"].tolist()) == ([2.0, 2.0], [0.5, 0.5])

    class OnMore(OnTest):
        def after_central_iteration(self, aggregate_metrics: Any, model: Model, *, central_iteration: int) -> Any:
            return False, SimpleNamespace(to_simple_dict=lambda: {"Central test | loss": 3.0})

    said = recorded(tmp_path / "two", [training(*THREE)] * 2, callbacks=[OnTest(), OnMore()])
    assert said == [
        f"{tmp_path}/two: in pfl's evaluation test_loss is 2 by the first of its evaluations, which is taken, and 3 by "
        "a later one; give one number for each"
    ]


def test_a_second_run_is_told_that_the_first_has_closed_the_recording(tmp_path: Path) -> None:
    """Its first round was lost without a word, and the others with another one."""
    algorithm = Averaging()
    cohorts, about = [training(*THREE)] * 2, {"algorithm": algorithm}
    assert recorded(tmp_path / "run", cohorts, **about) == []
    assert told(lambda: algorithm.run(cohorts, backend(), Model())) == [
        f"{tmp_path}/run: the run is closed, which algorithm.run does, so no further round of pfl is recorded; before "
        "the next one call fedscope.record_pfl again, with resume=True to go on with this run, or with another path"
    ]
    assert Run.open(tmp_path / "run").rounds == (1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorded(tmp_path / "run", cohorts, resume=True, **about)
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3, 4)


def test_mechanisms_that_clip_are_told(tmp_path: Path) -> None:
    (sentence,) = recorded(tmp_path / "run", [training(*THREE)], NormClipping())
    assert sentence == (
        "LocalPrivacyMechanism clips what users send or adds noise to it: the run holds users' models as they were "
        "trained, and global is not their mean"
    )


def test_a_whole_module_is_read_with_its_statistics(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Torch(Model):
        def __init__(self) -> None:
            super().__init__()
            self.pytorch_model = torch.nn.BatchNorm1d(5)
            self.arrays["w"] = self.pytorch_model.weight.detach().numpy()  # one memory

    algorithm = fedscope.record_pfl(Averaging(), tmp_path / "run")
    algorithm.run([training(*THREE)], backend(), Torch())
    run = Run.open(tmp_path / "run")
    names = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert [entry.name for entry in run.layout.entries] == names
    assert [run.round(1).client(k).arrays()["weight"][0] for k in (1, 2, 3)] == [11, 21, 31]


# --- what cannot be recorded ---


def test_an_algorithm_that_fails_fails_as_before_and_its_rounds_are_complete(tmp_path: Path) -> None:
    algorithm = Averaging()
    algorithm.fails_in = 2
    fedscope.record_pfl(algorithm, tmp_path / "run")
    with pytest.raises(ZeroDivisionError, match=r"^the algorithm fails$"):
        algorithm.run([training(*THREE)] * 4, backend(), Model())
    assert Run.open(tmp_path / "run").rounds == (1, 2)
    fedscope.Recorder(tmp_path / "run", resume=True).close()


def test_a_round_that_cannot_be_recorded_is_told_and_the_next_one_is(tmp_path: Path) -> None:
    class Odd(Averaging):
        def train_one_user(self, initial: Arrays, model: Model, user_dataset: User, central_context: Any) -> Any:
            made = super().train_one_user(initial, model, user_dataset, central_context)
            model.arrays.pop("extra", None)
            if (central_context.current_central_iteration, user_dataset.user_id) == (1, "user-1"):
                model.arrays["extra"] = np.array("what no run can hold")
            return made

    found = recorded(tmp_path / "run", [training(*THREE)] * 3, algorithm=Odd())
    assert found == [
        f"{tmp_path}/run: round 1 of pfl is not recorded, so later ones have lower numbers in the run: extra is of "
        "type ndarray, not an array of numbers; encrypted models cannot be recorded"
    ]
    assert Run.open(tmp_path / "run").rounds == (1, 2)


def test_recording_again_ends_the_former_recording(tmp_path: Path) -> None:
    algorithm = Averaging()
    fedscope.record_pfl(algorithm, tmp_path / "former")
    fedscope.record_pfl(algorithm, tmp_path / "run")
    algorithm.run([training(*THREE)], backend(), Model())
    assert Run.open(tmp_path / "run").rounds == (1,)
    assert not (tmp_path / "former" / "run.json").exists()


@pytest.mark.parametrize(("name", "about", "message"), REFUSED)
def test_a_recording_that_is_refused_leaves_the_former_one(
    name: str, about: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """The former one had ended by then, so that the rest of the training was lost."""
    (tmp_path / "taken").write_text("mine")
    algorithm: Any = Averaging()

    class Again:
        def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> Any:
            algorithm.recorder.flush()
            if central_iteration == 0:
                with pytest.raises(FedscopeError, match=message):
                    fedscope.record_pfl(algorithm, tmp_path / name, **about)
            return False, SimpleNamespace(to_simple_dict=dict)

    about_run = {"algorithm": algorithm, "callbacks": [Again()]}
    assert recorded(tmp_path / "run", [training(*THREE)] * 3, **about_run) == []
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)


def test_a_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "run", [training(*THREE)])
    with pytest.raises(FedscopeError, match="holds a run with 1 round"):
        fedscope.record_pfl(Averaging(), tmp_path / "run")
    assert recorded(tmp_path / "run", [training(*THREE)], resume=True) == []
    assert Run.open(tmp_path / "run").rounds == (1, 2)


def test_several_processes_are_refused_by_the_environment_or_by_pfl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = (
        "pfl simulates in 2 processes, each of which sees some of the users, so none can record a round; start one "
        "process, python instead of torchrun"
    )
    algorithm = fedscope.record_pfl(Averaging(), tmp_path / "late")
    module = SimpleNamespace(distributed=SimpleNamespace(world_size=2))
    monkeypatch.setitem(sys.modules, "pfl.internal.ops.selector", SimpleNamespace(_framework_module=module))
    with pytest.raises(FedscopeError) as raised:
        algorithm.run([training(*THREE)], backend(), Model())
    assert str(raised.value) == sentence
    monkeypatch.delitem(sys.modules, "pfl.internal.ops.selector")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(FedscopeError) as raised:
        fedscope.record_pfl(Averaging(), tmp_path / "run")
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (Averaging, {}, "Averaging is a class; give an instance, as in record_pfl(Averaging(), ...)"),
        (Model(), {}, "Model is no algorithm of pfl that trains models on users: it has no train_one_user; give one"),
        (Averaging(), {"clients": ["a", "a"]}, "clients= names 'a' twice; give each name once"),
        (Averaging(), {"model": 3}, "a model was given as int; give a module"),
        (Averaging(), {"partition": {0: [1]}}, "partition= needs labels="),
    ],
)
def test_what_is_no_algorithm_or_no_model_is_refused(
    algorithm: Any, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FedscopeError) as raised:
        fedscope.record_pfl(algorithm, tmp_path / "run", **settings)
    assert message in str(raised.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_another_version_is_told_and_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "fedscope.checkpoints.recorder.framework_rounds.version"
    monkeypatch.setattr(place, {"pfl": "0.5.1"}.__getitem__)
    assert told(lambda: fedscope.record_pfl(Averaging(), tmp_path / "run")) == [
        "pfl 0.5.1 is installed, and recording was tested with 0.6.0; look at the run with fedscope ls, or pip install "
        "pfl==0.6.0"
    ]

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(place, missing)
    with pytest.raises(FedscopeError, match=r"^pfl is not installed; pip install pfl==0\.6\.0$"):
        fedscope.record_pfl(Averaging(), tmp_path / "run")


def test_recording_needs_neither_pfl_nor_torch() -> None:
    code = """
        import sys
        sys.modules["pfl"] = sys.modules["torch"] = None
        import fedscope
        import fedscope.checkpoints.recorder.pfl.watch
        fedscope.record_pfl
    """
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code)], check=True)
