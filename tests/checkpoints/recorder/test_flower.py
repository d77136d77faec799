"""Flower's strategies, recorded, on stand-ins for its few classes; test_flower_long.py has the real ones."""

from __future__ import annotations

import inspect
import io
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_stand_ins import (
    NODES,
    Averaging,
    Emptying,
    Message,
    MetricRecord,
    Net,
    arrays,
    cohort,
    model,
    parameters,
    play,
    reply,
    result,
    same,
)
from recorder_warnings import told
from refused_recordings import REFUSED

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.rounds.sketches import sketch
from fedscope.checkpoints.rounds.verify import check_round
from fedscope.training.curves.run_names import both_seeds, method_of

# --- what is recorded ---


@pytest.mark.usefixtures("quiet")
def test_what_clients_sent_is_recorded_before_a_strategy_empties_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    strategy = Emptying()
    parts, y = {0: range(10), 2: range(30, 60), 1: range(10, 30)}, [1] * 10 + [0, 1] * 25
    assert fedscope.record(strategy, "run", data="digits", partition=parts, labels=y) is strategy
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # as an app may
    end = play(strategy, cohort, should_stop="later versions have it")
    assert strategy.more == {"should_stop": "later versions have it"}
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    assert (run.info["source"], run.info["data"]) == ("Flower (Emptying)", {"name": "digits"})
    assert run.partition is not None
    assert run.partition.label_counts.tolist() == [[0, 10], [10, 10], [15, 15]]
    before = model(0)
    for t in run.rounds:
        round_ = run.round(t)
        assert round_.client_ids.tolist() == [0, 1, 2]
        assert round_.client_samples.tolist() == [10, 20, 30]
        for k in range(3):
            same(round_.client(k).arrays(), model(10 * t + k))
        same(round_.read("start").arrays(), before)
        middle = {n: np.median([model(10 * t + k)[n] for k in range(3)], axis=0) for n in before}
        # the median of whole numbers is a float, which clients load as a whole number
        before = {n: np.asarray(value).astype(before[n].dtype) for n, value in middle.items()}
        same(round_.read("global").arrays(), before)
        assert round_.metrics["train_loss"] == 0.25
        assert check_round(round_).faults == ()
    assert end["norm.num_batches_tracked"].numpy().dtype == np.float64
    # what the mod added is gone before the strategy looks
    assert strategy.seen == [["arrays", "metrics"]] * 9
    # and the folder is given back
    fedscope.Recorder(tmp_path / "run", resume=True).close()


@pytest.mark.usefixtures("quiet")
def test_a_run_goes_under_its_strategy_or_the_method_that_is_said(tmp_path: Path) -> None:
    play(fedscope.record(Emptying(), tmp_path / "by-strategy"), cohort)
    play(fedscope.record(Emptying(), tmp_path / "said", method="FedX", seed=2, settings={"lr": 0.1}), cohort)
    named = [
        (method_of(run), both_seeds(run)[0]) for run in map(Run.open, (tmp_path / "by-strategy", tmp_path / "said"))
    ]
    assert named == [("Flower (Emptying)", None), ("FedX", 2)]
    assert Run.open(tmp_path / "said").info["settings"] == {"lr": 0.1}


@pytest.mark.usefixtures("quiet")
def test_sketches_of_all_and_the_models_of_a_few(tmp_path: Path) -> None:
    for name, kept in {"all": {}, "few": {"keep": "sample:1", "sketch": 32}}.items():
        play(fedscope.record(Emptying(), tmp_path / name, **kept), cohort)
    whole, few = (Run.open(tmp_path / name) for name in ("all", "few"))
    for t in few.rounds:
        one, other = whole.round(t), few.round(t)
        assert (other.has_sample, len(other.sampled_ids), other.sketch().shape) == (True, 1, (3, 32))
        same(other.sampled().row(0).arrays(), one.client(int(other.sampled_ids[0])).arrays())
        start, clients = one.read("start").parameters, one.clients().parameters
        np.testing.assert_array_equal(other.sketch(), sketch(few.layout, start, clients, 32))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("named", [False, True])
def test_the_older_interface_whichever_way_it_is_called(named: bool, tmp_path: Path) -> None:
    strategy = fedscope.record(Averaging(), tmp_path / "run", model=Net)
    for t in (1, 2):
        start = parameters(list(model(t).values()))
        results = [result(n, list(model(10 * t + k).values()), k + 1, k) for n, k in NODES.items()]
        if named:
            strategy.configure_fit(server_round=t, parameters=start, client_manager="manager")
            made, _ = strategy.aggregate_fit(server_round=t, results=results, failures=[])
        else:
            assert strategy.configure_fit(t, start, "manager") == ["manager"]
            made, _ = strategy.aggregate_fit(t, results, [ValueError("a client that failed")])
        assert strategy.metrics == [{"loss": 0.5}] * 3
    strategy.configure_fit(3, start, "manager")
    strategy.aggregate_fit(3, [result(7, list(model(1).values()), partition=1)], [])  # whose model is the mean
    strategy.recorder.close()
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    same(run.round(2).read("start").arrays(), model(2))
    same(run.round(2).client(1).arrays(), model(21))
    assert run.round(2).client_samples.tolist() == [1, 2, 3]
    ends = [np.load(io.BytesIO(tensor)) for tensor in made.tensors]
    same(
        run.round(2).read("global").arrays(),
        {name: end.astype(own.dtype) for (name, own), end in zip(model(0).items(), ends, strict=True)},
    )
    assert [entry.kind for entry in run.layout.entries] == ["parameter", "parameter", "buffer"]


@pytest.mark.usefixtures("quiet")
def test_messages_by_keyword(tmp_path: Path) -> None:
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    assert strategy.configure_train(server_round=1, arrays=arrays(model(0)), config="config", grid=7) == [7]
    strategy.aggregate_train(server_round=1, replies=cohort(1))
    strategy.recorder.close()
    same(Run.open(tmp_path / "run").round(1).client(2).arrays(), model(12))


@pytest.mark.usefixtures("quiet")
def test_a_strategy_that_gives_nothing_leaves_the_model_and_failures_are_no_clients(tmp_path: Path) -> None:
    strategy = Emptying()
    strategy.gives_nothing_in = (1,)
    play(fedscope.record(strategy, tmp_path / "run"), lambda t: [Message(77), *cohort(t)], 2)
    run = Run.open(tmp_path / "run")
    same(run.round(1).read("global").arrays(), model(0))
    same(run.round(2).read("start").arrays(), model(0))
    assert run.round(1).client_ids.tolist() == [0, 1, 2]


@pytest.mark.usefixtures("quiet")
def test_a_strategy_that_fails_fails_as_before_and_its_rounds_are_complete(tmp_path: Path) -> None:
    strategy = Emptying()
    strategy.fails_in = 3
    with pytest.raises(ZeroDivisionError, match=r"^the strategy fails$"):
        play(fedscope.record(strategy, tmp_path / "run"), cohort, 5)
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2)
    assert check_round(run.round(2)).faults == ()
    fedscope.Recorder(tmp_path / "run", resume=True).close()


@pytest.mark.usefixtures("quiet")
def test_unnamed_arrays_take_their_names_from_the_model(tmp_path: Path) -> None:
    def unnamed(number: int) -> list[Message]:
        return [
            reply(n, {str(i): v for i, v in enumerate(model(number + k).values())}, partition=k)
            for n, k in NODES.items()
        ]

    for name, architecture, expected in (("a", Net(), list(model(0))), ("b", None, ["0", "1", "2"])):
        strategy = fedscope.record(Emptying(), tmp_path / name, model=architecture)
        first = arrays({str(i): v for i, v in enumerate(model(0).values())})
        strategy.start(grid=unnamed, initial_arrays=first, num_rounds=1)
        run = Run.open(tmp_path / name)
        assert [entry.name for entry in run.layout.entries] == expected
        assert next(iter(run.round(1).client(1).arrays().values())).tobytes() == model(2)["a.weight"].tobytes()


@pytest.mark.usefixtures("quiet")
def test_data_are_kept_and_code_is_named_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = np.ones((5, 3), np.float32), np.zeros(5, int)
    about: dict[str, Any] = {"data": test, "standardise": False, "model": "task:Net"}
    fedscope.record(Emptying(), tmp_path / "kept", **about).start(
        grid=cohort, initial_arrays=arrays(model(0)), num_rounds=1
    )
    run = Run.open(tmp_path / "kept")
    assert run.info["data"]["standardise"] is False
    np.testing.assert_array_equal(np.load(run.path / "recorded-data.npz")["x_test"], test[0])
    said = capsys.readouterr().out
    assert said.endswith(f"fedscope subsets {tmp_path / 'kept'} --model task:Net\n")


@pytest.mark.usefixtures("quiet")
def test_named_arrays_keep_their_names_in_any_order(tmp_path: Path) -> None:
    def turned(number: int) -> list[Message]:
        return [reply(n, dict(reversed(model(k).items())), partition=k) for n, k in NODES.items()]

    play(fedscope.record(Emptying(), tmp_path / "run", model=Net), turned, 1)
    same(Run.open(tmp_path / "run").round(1).client(1).arrays(), model(1))


@pytest.mark.usefixtures("quiet")
def test_the_only_record_is_the_model_and_of_several_the_strategys_own(tmp_path: Path) -> None:
    def with_variates(number: int) -> list[Message]:
        return [reply(n, model(k), partition=k, variates=arrays(model(99))) for n, k in NODES.items()]

    def called_otherwise(number: int) -> list[Message]:
        found = list(cohort(number))
        for message in found:
            assert message.content is not None
            message.content["weights"] = message.content.pop("arrays")
        return found

    play(fedscope.record(Emptying(), tmp_path / "several"), with_variates, 1)
    same(Run.open(tmp_path / "several").round(1).client(0).arrays(), model(0))
    strategy = Emptying()
    strategy.gives_nothing_in = (1,)
    play(fedscope.record(strategy, tmp_path / "one"), called_otherwise, 1)
    same(Run.open(tmp_path / "one").round(1).client(1).arrays(), model(11))


@pytest.mark.usefixtures("quiet")
def test_what_a_model_weighs_is_under_the_key_of_the_innermost_strategy(tmp_path: Path) -> None:
    class Inner:
        weighted_by_key, arrayrecord_key = "tokens", "arrays"

    class Wrapper(Emptying):
        weighted_by_key = arrayrecord_key = property(lambda self: getattr(None, "missing"))  # noqa: B009
        strategy = Inner()

    def weighed(number: int) -> list[Message]:
        return [reply(n, model(k), partition=k, more=MetricRecord(tokens=0.5 + k)) for n, k in NODES.items()]

    play(fedscope.record(Wrapper(), tmp_path / "run"), weighed, 1)
    round_ = Run.open(tmp_path / "run").round(1)
    np.testing.assert_allclose(round_.weights, np.array([0.5, 1.5, 2.5]) / 4.5, rtol=1e-15)
    assert not round_.has("client_samples")


@pytest.mark.usefixtures("quiet")
def test_recording_again_ends_the_former_recording(tmp_path: Path) -> None:
    strategy = fedscope.record(Emptying(), tmp_path / "a")
    play(strategy, cohort, 1)
    with pytest.raises(FedscopeError, match="holds a run with 1 round; give force=True"):
        fedscope.record(strategy, tmp_path / "a")
    play(fedscope.record(strategy, tmp_path / "a", resume=True), cohort, 2)
    assert Run.open(tmp_path / "a").rounds == (1, 2, 3)
    play(fedscope.record(strategy, tmp_path / "a", force=True), cohort, 1)
    assert Run.open(tmp_path / "a").rounds == (1,)
    fedscope.record(strategy, tmp_path / "b")
    play(fedscope.record(strategy, tmp_path / "c"), cohort, 1)
    fedscope.Recorder(tmp_path / "b").close()  # is free
    assert not (tmp_path / "b" / "run.json").exists()
    assert (Run.open(tmp_path / "a").rounds, Run.open(tmp_path / "c").rounds) == ((1,), (1,))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("name", "about", "message"), REFUSED)
def test_a_recording_that_is_refused_leaves_the_former_one(
    name: str, about: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """The former one had ended by then, so that the rest of the training was lost."""
    (tmp_path / "taken").write_text("mine")
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    former = strategy.recorder

    def replies(number: int) -> Iterator[Message]:
        if number == 2:
            former.flush()
            with pytest.raises(FedscopeError, match=message):
                fedscope.record(strategy, tmp_path / name, **about)
            with pytest.raises(FedscopeError, match="is being written by this program itself"):
                fedscope.Recorder(tmp_path / "run", resume=True)
            assert strategy.recorder is former
        return cohort(number)

    play(strategy, replies)
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)
    fedscope.Recorder(tmp_path / "run", resume=True).close()  # is free


# --- what is refused at once ---


@pytest.mark.parametrize(
    ("strategy", "settings", "message"),
    [
        (Emptying, {}, "Emptying is a class; give an instance, as in record(Emptying(), …)"),
        (
            Net(),
            {},
            "Net is not a strategy of Flower: it has neither configure_train and aggregate_train nor configure_f",
        ),
        (None, {}, "NoneType is not a strategy of Flower"),
        (Averaging(), {}, "sends arrays without names, which a run takes from the model; give the module or its class"),
        (Averaging(), {"model": "cnn"}, "as model=Net, not 'cnn'"),
        (Emptying(), {"model": 3}, "a model was given as int; give a module"),
        (
            Emptying(),
            {"model": lambda width: Net()},
            "model= cannot be made without arguments (test_what_is_no_strategy",
        ),
        (Emptying(), {"partition": {0: [1]}}, "partition= needs labels="),
    ],
)
def test_what_is_no_strategy_or_no_model_is_refused(
    strategy: Any, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FedscopeError) as raised:
        fedscope.record(strategy, tmp_path / "run", **settings)
    assert message.partition("(test_")[0] in str(raised.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").write_text("mine")
    with pytest.raises(FedscopeError, match="holds something else than a run"):
        fedscope.record(Emptying(), tmp_path / "run", force=True)


def test_recording_needs_neither_flower_nor_torch(tmp_path: Path) -> None:
    code = """
        import sys
        sys.modules["flwr"] = sys.modules["torch"] = None
        import fedscope

        class Strategy:
            def configure_train(self, server_round, arrays, config, grid): ...
            def aggregate_train(self, server_round, replies): ...

        fedscope.record(Strategy(), sys.argv[1]).recorder.close()
        fedscope.partition_mod
    """
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code), str(tmp_path / "run")], check=True)


def test_drift_is_measured_as_the_run_goes_on(tmp_path: Path) -> None:
    play(fedscope.record(Emptying(), tmp_path / "run", drift=True), cohort)
    for number in (1, 2, 3):
        assert 0 < Run.open(tmp_path / "run").round(number).metrics["drift_kept"] <= 1


def test_the_scale_of_adapters_is_taken_as_by_the_recorder_of_loops(tmp_path: Path) -> None:
    said = told(lambda: play(fedscope.record(Emptying(), tmp_path / "run", lora_alpha=8), cohort, rounds=1))
    assert "lora_alpha = 8 was given, but the models hold no factors of adapters; leave it out" in said[0]


@pytest.mark.parametrize(
    ("record", "without"),
    [
        (fedscope.record, set()),
        (fedscope.record_pfl, set()),
        (fedscope.record_blazefl, set()),
        # a job is sent as files, and its data stay where they are
        (fedscope.record_nvflare, {"keep_data", "partition", "labels"}),
    ],
)
def test_a_framework_s_recorder_takes_what_the_recorder_takes(record: Callable[..., Any], without: set[str]) -> None:
    options = set(inspect.signature(fedscope.Recorder).parameters) - {"source"}
    assert options - set(inspect.signature(record).parameters) == without
