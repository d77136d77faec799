"""Evaluations of Flower's server and clients as the numbers of their round."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flower_stand_ins import (
    NODES,
    Averaging,
    Content,
    Evaluating,
    Message,
    MetricRecord,
    Net,
    arrays,
    cohort,
    evaluations,
    model,
    parameters,
    play,
    result,
)
from recorder_warnings import told

import fedscope
from fedscope.checkpoints import Run
from fedscope.checkpoints.rounds.verify import check_round


def centrally(number: int, arrays_: Any) -> Any:
    """What an ``evaluate_fn`` gives; nothing in the second round."""
    return None if number == 2 else MetricRecord({"accuracy": 1 - number / 10, "loss": number + 0.5, "f1": 0.3})


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("by_place", [False, True])
def test_evaluations_of_server_and_clients_are_numbers_of_their_round(by_place: bool, tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    first = arrays(model(0))
    if by_place:
        strategy.start(cohort, first, 3, 60.0, centrally)
    else:
        strategy.start(grid=cohort, initial_arrays=first, evaluate_fn=centrally)
    assert strategy.seen_by_server == [centrally(number, None) for number in range(4)]
    run = Run.open(tmp_path / "run")
    found = run.metrics()
    np.testing.assert_allclose(found["test_loss"], [1.5, np.nan, 3.5])
    np.testing.assert_allclose(found["test_error"], [0.1, np.nan, 0.3])
    errors = [[1 - 0.1 * t - 0.2 * k for k in range(3) if (t, k) != (2, 0)] for t in (1, 2, 3)]
    np.testing.assert_allclose(found["client_test_error_mean"], [np.mean(own) for own in errors])
    np.testing.assert_allclose(found["client_test_error_std"], [np.std(own) for own in errors])
    assert [run.round(t).metrics["train_loss"] for t in run.rounds] == [0.25] * 3
    assert [check_round(run.round(t)).faults for t in run.rounds] == [()] * 3


@pytest.mark.usefixtures("quiet")
def test_without_its_evaluation_a_round_is_recorded_all_the_same(tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    for t in (1, 2, 3):
        strategy.configure_train(t, arrays(model(0)), "config", None)
        strategy.aggregate_train(t, cohort(t))
        if t == 1:
            strategy.aggregate_evaluate(1, evaluations(1))
            assert strategy.recorder.flush() == 1
    assert strategy.recorder.flush() == 3
    strategy.aggregate_evaluate(3, evaluations(3))  # too late
    strategy.recorder.close()
    found = Run.open(tmp_path / "run").metrics()["client_test_error_mean"]
    np.testing.assert_allclose(found, [0.7, np.nan, np.nan])


class EvaluatingOld(Averaging):
    """A strategy of the older interface."""

    central: Any = (2.5, {"accuracy": 0.75})
    asks = True

    def evaluate(self, server_round: int, parameters: Any) -> Any:
        return self.central

    def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        return [client_manager] if self.asks else []

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> tuple[Any, Any]:
        return 0.5, {}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("order", ["central", "clients"])
def test_evaluations_of_the_older_interface_in_either_order(order: str, asks: bool, tmp_path: Path) -> None:
    strategy = EvaluatingOld()
    strategy.asks = asks
    fedscope.record(strategy, tmp_path / "run", model=Net)
    start = parameters(list(model(1).values()))
    assert strategy.evaluate(0, parameters=start) == (2.5, {"accuracy": 0.75})
    for t in (1, 2):
        strategy.configure_fit(t, start, "manager")
        strategy.aggregate_fit(t, [result(n, list(model(k).values()), k + 1, k) for n, k in NODES.items()], [])

        def clients(t: int = t) -> None:
            answers = [(None, SimpleNamespace(loss=1.0, metrics={"accuracy": 0.5 + 0.1 * k})) for k in range(3)]
            if strategy.configure_evaluate(t, start, "manager"):
                assert strategy.aggregate_evaluate(t, answers, []) == (0.5, {})

        def central(t: int = t) -> None:
            strategy.evaluate(server_round=t, parameters=start)

        for part in (central, clients) if order == "central" else (clients, central):
            part()
        assert strategy._fedscope._held is None  # nothing waits for more
    strategy.recorder.close()
    run = Run.open(tmp_path / "run")
    assert [(row["test_loss"], row["test_error"]) for row in run.table_rows().values()] == [(2.5, 0.25)] * 2
    found = run.metrics()["client_test_error_mean"]
    np.testing.assert_allclose(found, [0.4] * 2 if asks else [np.nan] * 2)


def test_an_accuracy_in_per_cent_is_told_and_not_taken(tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    (sentence,) = told(
        lambda: play(strategy, cohort, evaluate_fn=lambda number, arrays: {"accuracy": 87.5, "loss": 0.5})
    )
    assert sentence == (
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 87.5, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share"
    )
    found = Run.open(tmp_path / "run").metrics()
    assert found["test_loss"].tolist() == [0.5] * 3
    assert np.isnan(found["test_error"]).all()


def test_rounds_that_were_read_as_shares_before_are_named(tmp_path: Path) -> None:
    """An accuracy of 1 % was an error of 0, for ever and without a word."""
    accuracies = {0: 0.5, 1: 1.0, 2: 0.0, 3: 0.75, 4: 15.0, 5: 0.5}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(
        lambda: play(strategy, cohort, 5, evaluate_fn=lambda number, _: {"accuracy": accuracies[number], "loss": 2.0})
    ) == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 15, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share and record again, since test_error of rounds 1, 3 was read as "
        "a share before, and is wrong, or measure it once the run is closed: fedscope measure "
        f"{tmp_path}/run --rounds 1-3 --force --accept-data --model NAME --data NAME"
    ]
    found = Run.open(tmp_path / "run").metrics()
    np.testing.assert_allclose(found["test_error"], [0.0, 1.0, 0.25, np.nan, np.nan])
    assert found["test_loss"].tolist() == [2.0] * 5


def test_the_model_before_all_rounds_tells_the_scale(tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    found = told(lambda: play(strategy, cohort, 2, evaluate_fn=lambda number, _: {"accuracy": 1.0 if number else 10.0}))
    assert found == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 10, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share"
    ]
    assert "test_error" not in Run.open(tmp_path / "run").round(1).metrics


def test_a_number_beside_tells_the_scale(tmp_path: Path) -> None:
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    found = told(
        lambda: play(strategy, cohort, 2, evaluate_fn=lambda number, _: {"accuracy": 1.0, "top5_accuracy": 9.0})
    )
    assert found == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 1 beside top5_accuracy = 9, which is no share from 0 to "
        "1, so no error is recorded of it or of later rounds; give a share"
    ]
    assert "test_error" not in Run.open(tmp_path / "run").round(1).metrics


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("accuracy", 1.2, "1.2"), ("error", float("inf"), "inf"), ("accuracy", -0.25, "-0.25"), ("error", 1.5, "1.5")],
)
def test_a_number_out_of_range_leaves_out_its_own_round(name: str, value: float, shown: str, tmp_path: Path) -> None:
    """All later rounds were left out, and those before were said to be wrong."""
    given = {0: 0.5, 1: 0.25, 2: value, 3: 0.75, 4: 1 + 5e-7}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(lambda: play(strategy, cohort, 4, evaluate_fn=lambda number, _: {name: given[number]})) == [
        f"{tmp_path}/run: Flower's evaluation gives {name} = {shown}, which is no share from 0 to 1, so no error is "
        "recorded of it; give a share"
    ]
    expected = np.array([0.25, np.nan, 0.75, 1.0])
    found = Run.open(tmp_path / "run").metrics()["test_error"]
    np.testing.assert_allclose(found, 1 - expected if name == "accuracy" else expected)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("beside", [{"train_error": 3.1}, {"eval_error_rate": 7.0}, {"train_acc": np.inf}])
def test_what_is_no_accuracy_is_no_scale_of_one(beside: dict[str, float], tmp_path: Path) -> None:
    """An error or a loss beside it ended the column."""
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    play(strategy, cohort, evaluate_fn=lambda number, _: {"accuracy": 0.75, **beside})
    assert Run.open(tmp_path / "run").metrics()["test_error"].tolist() == [0.25] * 3


def test_one_client_out_of_range_leaves_out_its_own_round(tmp_path: Path) -> None:
    def replies(number: int) -> list[Message]:
        own = [1.25 if (number, k) == (2, 1) else 0.5 for k in range(3)]
        return [Message(k, Content(metrics=MetricRecord({"eval_acc": one}))) for k, one in enumerate(own)]

    assert told(lambda: play(fedscope.record(Evaluating(replies), tmp_path / "run"), cohort)) == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 1.25, which is no share from 0 to 1, so no error is "
        "recorded of it; give a share"
    ]
    found = Run.open(tmp_path / "run").metrics()["client_test_error_mean"]
    np.testing.assert_allclose(found, [0.5, np.nan, 0.5])


def test_of_several_clients_one_in_per_cent_says_the_scale(tmp_path: Path) -> None:
    def replies(number: int) -> list[Message]:
        return [Message(k, Content(metrics=MetricRecord({"eval_acc": 1.25 + 9 * k}))) for k in range(3)]

    assert told(lambda: play(fedscope.record(Evaluating(replies), tmp_path / "run"), cohort)) == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 10.25, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share"
    ]


def test_rounds_of_clients_that_were_read_as_shares_are_named(tmp_path: Path) -> None:
    def percent(number: int) -> list[Message]:
        return [Message(k, Content(metrics=MetricRecord({"eval_acc": 0.5 if number < 3 else 20.0}))) for k in range(3)]

    assert told(lambda: play(fedscope.record(Evaluating(percent), tmp_path / "run"), cohort, 4)) == [
        f"{tmp_path}/run: Flower's evaluation gives accuracy = 20, which is no share from 0 to 1, so no error is "
        "recorded of it or of later rounds; give a share and record again, since client_test_error_mean of rounds 1-2 "
        "was read as a share before, and is wrong"
    ]
    found = Run.open(tmp_path / "run").metrics()
    np.testing.assert_allclose(found["client_test_error_mean"], [0.5, 0.5, np.nan, np.nan])
    np.testing.assert_allclose(found["client_test_error_std"], [0.0, 0.0, np.nan, np.nan])


def test_numbers_of_test_data_go_before_those_of_validation_data(tmp_path: Path) -> None:
    """The shortest name was taken, as val_loss beside test_loss."""

    def both(number: int) -> list[Message]:
        numbers = {"val_acc": 0.9, "test_accuracy": 0.25 * (number > 0), "accuracy": 0.8}
        return [Message(k, Content(metrics=MetricRecord(numbers))) for k in range(3)]

    centrally_ = {"val_loss": 0.1, "val_acc": 0.9, "accuracy": 0.7, "loss": 1.0, "test_loss": 2.0, "test_accuracy": 0.5}
    strategy = fedscope.record(Evaluating(both), tmp_path / "run")
    # those of validation data say by their names that they may differ
    assert told(lambda: play(strategy, cohort, 2, evaluate_fn=lambda number, _: centrally_)) == [
        f"{tmp_path}/run: in Flower's evaluation {column} is taken from '{name}', and '{other}' beside it says "
        "otherwise; give one number for each"
        for column, name, other in (
            ("client_test_error_mean", "test_accuracy", "accuracy"),
            ("test_loss", "test_loss", "loss"),
            ("test_error", "test_accuracy", "accuracy"),
        )
    ]
    row = Run.open(tmp_path / "run").round(1).metrics
    names = ("test_loss", "test_error", "client_test_error_mean")
    assert [row[name] for name in names] == [2.0, 0.5, 0.75]


def test_which_of_several_numbers_is_taken_is_told_once(tmp_path: Path) -> None:
    numbers = {"test_loss": 1.0, "central_test_loss": 2.0, "eval_accuracy": 0.5, "global_accuracy": 0.5}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(lambda: play(strategy, cohort, evaluate_fn=lambda number, _: numbers)) == [
        f"{tmp_path}/run: in Flower's evaluation test_loss is taken from 'test_loss', and 'central_test_loss' beside "
        "it says otherwise; give one number for each"
    ]
    row = Run.open(tmp_path / "run").round(1).metrics
    assert (row["test_loss"], row["test_error"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    "word", ["local", "client", "clients", "avg", "mean", "average", "federated", "distributed", "aggregated"]
)
def test_the_server_s_own_numbers_go_before_those_of_clients(word: str, tmp_path: Path) -> None:
    """The mean of local models on their own test data was the error of the server's."""
    numbers = {f"{word}_test_accuracy": 0.5, "val_accuracy": 0.75, f"{word}_test_loss": 3.0, "loss": 1.0}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(lambda: play(strategy, cohort, evaluate_fn=lambda number, _: numbers)) == [
        f"{tmp_path}/run: in Flower's evaluation {column} is taken from {taken!r}, and '{word}_test_{what}' beside it "
        "says otherwise; give one number for each"
        for column, taken, what in (("test_loss", "loss", "loss"), ("test_error", "val_accuracy", "accuracy"))
    ]
    row = Run.open(tmp_path / "run").round(1).metrics
    assert (row["test_loss"], row["test_error"]) == (1.0, 0.25)


def test_validation_data_taken_before_a_mean_of_test_data_is_told(tmp_path: Path) -> None:
    numbers = {"val_accuracy": 0.75, "mean_test_accuracy": 0.5, "test_loss": 1.0, "val_loss": 2.0}
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    assert told(lambda: play(strategy, cohort, evaluate_fn=lambda number, _: numbers)) == [
        f"{tmp_path}/run: in Flower's evaluation test_error is taken from 'val_accuracy', and 'mean_test_accuracy' "
        "beside it says otherwise; give one number for each"
    ]


def test_the_loss_that_the_older_interface_gives_apart_comes_first(tmp_path: Path) -> None:
    class Local(EvaluatingOld):
        central = 2.5, {"accuracy": 0.75, "test_loss": 3.0, "local_test_loss": 4.0}

    strategy = fedscope.record(Local(), tmp_path / "run", model=Net)
    start = parameters(list(model(1).values()))
    strategy.configure_fit(1, start, "manager")
    strategy.aggregate_fit(1, [result(n, list(model(k).values()), k + 1, k) for n, k in NODES.items()], [])
    assert told(lambda: strategy.evaluate(1, start)) == [
        f"{tmp_path}/run: in Flower's evaluation test_loss is taken from the loss beside the metrics, and 'test_loss' "
        "beside it says otherwise; give one number for each"
    ]
    strategy.recorder.close()
    assert Run.open(tmp_path / "run").round(1).metrics["test_loss"] == 2.5


class OneNumber:
    """A tensor of one number, by its interface."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        return self.value


@pytest.mark.usefixtures("quiet")
def test_numbers_are_read_whatever_they_are_in(tmp_path: Path) -> None:
    """Those of numpy and of torch were left out without a word."""

    class Measuring(EvaluatingOld):
        central = OneNumber(1.5), {"accuracy": np.array(0.75), "test_loss": "low", "f1": [1.0], "error": True}

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[Any, Any]:
            return super().aggregate_fit(server_round, results, failures)[0], {"train_loss": np.float32(0.25)}

    strategy = fedscope.record(Measuring(), tmp_path / "run", model=Net)
    start = parameters(list(model(1).values()))
    strategy.configure_fit(1, start, "manager")
    strategy.aggregate_fit(1, [result(n, list(model(k).values()), k + 1, k) for n, k in NODES.items()], [])
    strategy.evaluate(1, start)
    strategy.recorder.close()
    row = Run.open(tmp_path / "run").round(1).metrics
    assert (row["train_loss"], row["test_loss"], row["test_error"]) == (0.25, 1.5, 0.25)


def test_metrics_that_nobody_understands_disturb_nobody(tmp_path: Path) -> None:
    class Odd:
        metadata = SimpleNamespace(src_node_id=1)

        def has_content(self) -> bool:
            raise RuntimeError("odd")

    class Careless(Evaluating):
        def aggregate_evaluate(self, server_round: int, replies: Any) -> Any:
            return "no record"

    strategy = fedscope.record(Careless(), tmp_path / "run")
    strategy.configure_train(1, arrays(model(0)), "config", None)
    strategy.aggregate_train(1, cohort(1))
    (sentence,) = told(lambda: strategy.aggregate_evaluate(1, [Odd()]))
    assert sentence.endswith("run: Flower's evaluation is not recorded: RuntimeError: odd")
    strategy.recorder.close()
    assert Run.open(tmp_path / "run").rounds == (1,)
