"""Addresses: one model in one word, and what there is where it names none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedscope.checkpoints import (
    Address,
    FedscopeError,
    Layout,
    RoundRecord,
    RunWriter,
    TensorEntry,
    Weights,
    load_model,
    parse_address,
    write_file,
)

pytestmark = pytest.mark.same_elsewhere

LAYOUT = Layout((TensorEntry("w", (3,), "float32", "parameter"),))
IDS = np.array([3, 8, 11, 20])


def one(value: float) -> Weights:
    return Weights(LAYOUT, np.full(3, value, np.float32), {})


@pytest.fixture(scope="module")
def ima(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "ima"
    with RunWriter.create(path, {"layout": LAYOUT.to_json()}, {}, None) as writer:
        for t in range(1, 5):
            clients = Weights(LAYOUT, (t + np.arange(12).reshape(4, 3) / 7).astype(np.float32), {})
            metrics = {"test_loss": 1 / t, "test_error": float("nan"), "averaged_test_loss": 10 / t}
            record = RoundRecord(
                t, one(10 * t), clients, one(20 * t), one(30 * t), IDS, IDS, IDS, IDS / 1, IDS / 42, metrics=metrics
            )
            if t < 3:
                record = replace(record, averaged=None)
            if t == 3:
                record = replace(record, clients=None, start=None)
            writer.write(record)
    return path


@pytest.mark.parametrize(
    ("rest", "value", "which", "label"),
    [
        ("@2", 40, "global", "ima@2"),
        ("@4", 120, "averaged", "ima@4"),
        ("@last/global", 80, "global", "ima@4/global"),
        ("@-1/averaged", 120, "averaged", "ima@4/averaged"),
        ("@-3/start", 20, "start", "ima@2/start"),
    ],
)
def test_a_model_of_a_run(ima, rest, value, which, label):
    model = load_model(f"{ima}{rest}")
    assert model.weights.parameters.tolist() == [value] * 3
    assert (model.which, model.label, model.address) == (which, label, f"{ima}{rest}")
    assert model.run is not None
    assert model.run.path == ima


def test_clients_and_their_unweighted_mean(ima):
    client = load_model(f"{ima}@1/client-8")
    np.testing.assert_array_equal(client.weights.parameters, (1 + np.arange(3, 6) / 7).astype(np.float32))
    assert (client.round, client.which, client.loss) == (1, "client-8", None)
    both = load_model(f"{ima}@1/mean(3, 20)")
    rows = [load_model(f"{ima}@1/client-{k}").weights.parameters.astype(np.float64) for k in (3, 20)]
    np.testing.assert_array_equal(both.weights.parameters, ((rows[0] + rows[1]) / 2).astype(np.float32))
    assert both.label == "ima@1/mean(3,20)"


def test_stored_values_are_those_of_the_model(ima):
    assert load_model(f"{ima}@4/global").loss == 1 / 4
    assert load_model(f"{ima}@4/global").error is None  # it was no number
    assert load_model(f"{ima}@4").loss == 10 / 4
    assert load_model(f"{ima}@4/start").loss is None


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ("@1/client-17", r"ima@1/client-17: round 1 recorded clients 3, 8, 11, 20$"),
        ("@1/mean(3,9)", r"ima@1/client-9: round 1 recorded clients 3, 8, 11, 20$"),
        ("@1/mean(3,3)", "names a client twice"),
        ("@9", r"ima@9: the run has rounds 1-4$"),
        ("@0", r"ima@0: rounds count from 1; the model that round 1 starts from is .*ima@1/start"),
        ("@x", r"'x' is not a round; give RUN@40, RUN@last, or RUN@-1"),
        ("@1/averaged", r"ima@1/averaged: round 1 recorded start, global, clients, not averaged; rounds 3-4 have it"),
        ("@3/start", r"round 3 recorded global, averaged, not start; rounds 1-2, 4 have it"),
        ("@3/client-3", r"ima@3/client-3: round 3 recorded no clients; rounds 1-2, 4 have them$"),
        ("@1/globl", r"'globl' is not a model of a round; did you mean \"global\"\?, give start, global, averaged"),
        ("@1/clients", "'clients' is not a model of a round"),
        ("", r"ima is a run; name one of its models, as in .*ima@last"),
    ],
)
def test_what_is_not_there_is_refused_with_what_there_is(ima, rest, sentence):
    with pytest.raises(FedscopeError, match=sentence):
        load_model(f"{ima}{rest}")


def test_a_missing_run_or_no_address_at_all(ima):
    with pytest.raises(FedscopeError, match=r'imaa does not exist; did you mean ".*ima"'):
        load_model(f"{ima}a@1")
    with pytest.raises(FedscopeError, match=r"nonsense is not an address of a model; give RUN@ROUND\[/WHICH\]"):
        load_model("nonsense")


def test_another_architecture_is_refused(ima):
    other = Layout((TensorEntry("v", (3,), "float32", "parameter"),))
    with pytest.raises(FedscopeError, match=r"ima@1 does not fit the expected model: w stands where the other has v"):
        load_model(f"{ima}@1", other)


def test_a_file_is_an_address(tmp_path):
    write_file(tmp_path / "best@run.pt", one(5))
    model = load_model(str(tmp_path / "best@run.pt"))
    assert model.weights.parameters.tolist() == [5, 5, 5]
    assert (model.label, model.run, model.round, model.loss) == ("best@run", None, None, None)


def test_parsing_opens_nothing():
    assert parse_address("no@where@-2/client-7") == Address("no@where", -2, "client", (7,))
    assert parse_address("gone.safetensors") == Address("gone.safetensors")
