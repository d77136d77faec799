"""FedGen: the clients' loss and the server's training of the generator against both written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import SUPERVISED, learning

from fedscope.checkpoints import FedscopeError, Layout, Round, RoundRecord, stack, write_round
from fedscope.training.build import initial_model
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import Exchange, LocalSchedule
from fedscope.training.methods.clients.fedgen import FedGen
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.rng import torch_generator

PLAIN = {"batch": 4, "momentum": 0.0, "weight_decay": 0.0, "clip": 0.0}
SIZES = {"noise": 4, "hidden": 6}


def exchange(small: Any, **changes: Any) -> Exchange:
    clients = small.clients(3)
    return Exchange(small.start, clients, clients.row(0), small.cohort(), small.facts, **changes)


def sent_by(small: Any, method: FedGen) -> dict[str, np.ndarray]:
    return dict(method.share(method.begin(small.start, small.facts), exchange(small)))


def as_module(sent: dict[str, np.ndarray]) -> Any:
    """The generator as torch's own layers."""
    hidden, inputs = sent["hidden.weight"].shape
    layers = torch.nn.Linear(inputs, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU()
    module = torch.nn.Sequential(*layers, torch.nn.Linear(hidden, len(sent["out.bias"]))).double()
    names = {"0": "hidden", "1": "norm", "3": "out"}
    given = {f"{i}.{key}": sent[f"{name}.{key}"] for i, name in names.items() for key in ("weight", "bias")}
    given |= {"1.running_mean": sent["norm.mean"], "1.running_var": sent["norm.variance"]}
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in given.items()}, strict=False)
    return module


def inputs_of(noise: Any, y: Any) -> Any:
    return torch.cat((noise, torch.eye(3, dtype=torch.float64)[y]), dim=1)


@pytest.mark.parametrize("supervised", list(SUPERVISED))
@pytest.mark.parametrize(("alpha", "beta"), [(10.0, 10.0), (3.0, 0.0), (0.0, 3.0)])
def test_clients_follow_the_formula(
    small: Any, by_hand: Callable[..., Any], alpha: float, beta: float, close: Any, supervised: str
) -> None:
    method = FedGen(**PLAIN, **SIZES, alpha=alpha, beta=beta, decay=0.5)
    task = small.task(sent=sent_by(small, method), draw=2, facts=learning(small, supervised))
    network = as_module(dict(task.sent)).eval()
    draws = torch_generator(0, "generator", round=3, client=2, draw=2)

    def step(module: Any, x: Any, y: Any) -> Any:
        n = len(y)
        wanted = torch.randint(3, (n,), generator=draws)
        noise = torch.randn(2 * n, 4, generator=draws, dtype=torch.float64)
        asked = taught = torch.zeros((), dtype=torch.float64)
        for i in range(n):
            target = module[2](network(inputs_of(noise[i : i + 1], y[i : i + 1])))[0].detach().softmax(0)
            own = torch.log(module(x[i]).softmax(0))
            taught = taught + sum(target[c] * (torch.log(target[c]) - own[c]) for c in range(3)) / n
            made = network(inputs_of(noise[n + i : n + i + 1], wanted[i : i + 1])).detach()
            asked = asked - torch.log(module[2](made)[0].softmax(0)[wanted[i]]) / n
        # Round 3: two decays.
        return SUPERVISED[supervised](module(x), y) + 0.25 * (alpha * asked + beta * taught)

    before = {name: value.copy() for name, value in task.sent.items()}
    trained = method.train(task).weights.parameters
    close(trained, by_hand(task, method, step), 1e-11)
    assert np.abs(trained - SGD(**PLAIN).train(small.task()).weights.parameters).max() > 1e-3
    assert all(before[name].tobytes() == value.tobytes() for name, value in task.sent.items())


def test_before_the_generator_is_trained_clients_train_as_sgd_bit_for_bit(small: Any) -> None:
    method = FedGen(batch=4, clip=0.7)
    sent = method.begin(small.start, small.facts)
    assert sent["norm.batches"] == 0
    plain = SGD(batch=4, clip=0.7).train(small.task())
    assert method.train(small.task(sent=sent)).weights.parameters.tobytes() == plain.weights.parameters.tobytes()
    later = method.share(sent, exchange(small))
    assert later["norm.batches"] == method.generator_steps
    assert {name: value.shape for name, value in later.items()} == {name: value.shape for name, value in sent.items()}
    assert method.train(small.task(sent=later)).weights.parameters.tobytes() != plain.weights.parameters.tobytes()


def test_generated_samples_reach_the_head_alone(small: Any) -> None:
    settings, head = {**PLAIN, "batch": 20}, small.facts.head_mask()
    method = FedGen(**settings, **SIZES, beta=0.0)
    once = {"pace": LocalSchedule(0.1, 1)}
    trained = method.train(small.task(sent=sent_by(small, method), **once)).weights.parameters
    plain = SGD(**settings).train(small.task(**once)).weights.parameters
    np.testing.assert_array_equal(trained[~head], plain[~head])
    assert np.abs(trained - plain)[head].max() > 1e-3


def test_draws_depend_on_round_client_and_draw(small: Any) -> None:
    method = FedGen(**PLAIN, **SIZES)
    sent = sent_by(small, method)
    # One batch, so that the order of the samples makes no difference beyond rounding.
    whole = replace(method, batch=20)

    def trained(**changes: Any) -> np.ndarray:
        parameters: np.ndarray = whole.train(small.task(sent=sent, **changes)).weights.parameters
        return parameters

    assert trained().tobytes() == trained().tobytes()
    for change in ({"draw": 2}, {"client": 1}, {"round": 4}, {"seed": 1}):
        assert np.abs(trained() - trained(**change)).max() > 1e-6, change


@pytest.mark.parametrize("diversity", [0.0, 2.5])
def test_the_server_trains_as_by_hand(small: Any, diversity: float) -> None:
    method = FedGen(
        **SIZES, generator_steps=3, generator_batch=8, generator_lr=0.02, decay=0.5, diversity=diversity, alpha=1.0
    )
    begun = sent_by(small, replace(method, generator_steps=1, generator_lr=1e-12))
    before = {name: value.copy() for name, value in begun.items()}
    ours = method.share(begun, exchange(small))
    assert all(before[name].tobytes() == value.tobytes() for name, value in begun.items())

    network, (clients, cohort) = as_module(begun), (small.clients(3), small.cohort())
    counts = cohort.label_counts
    draws = torch_generator(0, "generator", round=3, draw=0)
    moments = {name: (0.0, 0.0) for name, _ in network.named_parameters()}
    for k in range(1, 4):
        y = torch.multinomial(torch.from_numpy(counts.sum(0).astype(np.float64)), 8, replacement=True, generator=draws)
        noise = torch.randn(8, 4, generator=draws, dtype=torch.float64)
        features = network(inputs_of(noise, y))
        loss = torch.zeros((), dtype=torch.float64)
        for i, label in enumerate(y.tolist()):
            for client in range(3):
                arrays = clients.row(client).arrays()
                answer = torch.from_numpy(arrays["2.weight"]) @ features[i] + torch.from_numpy(arrays["2.bias"])
                share = counts[client, label] / counts[:, label].sum()
                loss = loss - share * torch.log(answer.softmax(0)[label]) / 8
        pairs = [(i, j) for i in range(8) for j in range(8)]
        apart = sum(
            ((noise[i] - noise[j]) ** 2).mean() * (features[i] - features[j]).abs().mean() for i, j in pairs
        ) / len(pairs)
        loss = loss + diversity * torch.exp(-apart)
        network.zero_grad()
        loss.backward()
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                m, v = moments[name]
                m, v = 0.9 * m + 0.1 * parameter.grad, 0.999 * v + 0.001 * parameter.grad**2
                moments[name] = m, v
                # Round 3: two decays.
                parameter -= 0.02 * 0.25 * (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)).sqrt() + 1e-8)
    expected = as_module(dict(ours)).state_dict()
    for name, value in network.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            # The first bias stands before the norm layer: its gradient is rounding alone, which Adam makes larger.
            np.testing.assert_allclose(expected[name], value, rtol=0, atol=1e-8, err_msg=name)
    assert np.abs(ours["out.weight"] - begun["out.weight"]).max() > 1e-3


def test_the_generator_learns_what_the_heads_agree_on_and_diversity_keeps_it_varied(small: Any) -> None:
    def spread_and_hits(diversity: float) -> tuple[float, float]:
        method = FedGen(**SIZES, generator_steps=150, diversity=diversity)
        sent = sent_by(small, method)
        y = torch.arange(3).repeat(50)
        noise = torch.randn(150, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        features = as_module(sent).eval()(inputs_of(noise, y)).detach()
        mean = small.clients(3).parameters.mean(0)
        arrays = {name: torch.from_numpy(view) for name, view in small.facts.layout.views(mean).items()}
        answers = features @ arrays["2.weight"].T + arrays["2.bias"]
        return float(features[y == 0].std(0).mean()), float((answers.argmax(1) == y).double().mean())

    flat, hits = spread_and_hits(0.0)
    varied, _ = spread_and_hits(20.0)
    assert hits > 0.95
    assert varied > 1.3 * flat


def test_clients_without_a_class_are_not_asked_about_it(small: Any) -> None:
    method, given = FedGen(**SIZES, generator_steps=4), exchange(small)
    begun = method.begin(small.start, small.facts)
    counts = np.array([[5, 0, 3], [0, 4, 4], [0, 0, 0]])
    rows = [small.model(100), small.model(101)]

    def trained(last: Any) -> bytes:
        clients = stack([*rows, last])
        cohort = replace(given.cohort, label_counts=counts)
        return method.share(begun, replace(given, clients=clients, cohort=cohort))["out.weight"].tobytes()

    assert trained(small.model(102)) == trained(small.model(103))
    assert trained(rows[0]) != sent_by(small, method)["out.weight"].tobytes()


def test_sharing_is_repeatable_whatever_the_number_of_threads(small: Any) -> None:
    method, own = FedGen(generator_steps=5), torch.get_num_threads()
    first = sent_by(small, method)
    try:
        torch.set_num_threads(own + 1)
        again = sent_by(small, method)
        assert torch.get_num_threads() == own + 1
    finally:
        torch.set_num_threads(own)
    assert {name: value.tobytes() for name, value in first.items()} == {
        name: value.tobytes() for name, value in again.items()
    }
    seeded = replace(small.facts, seed=1)
    begun, other = (method.begin(small.start, facts) for facts in (small.facts, seeded))
    assert begun["out.weight"].tobytes() != other["out.weight"].tobytes()
    drawn = method.share(begun, replace(exchange(small), facts=seeded))
    assert drawn["out.weight"].tobytes() != first["out.weight"].tobytes()


def test_a_generator_comes_back_from_a_file_as_it_was_sent(small: Any, tmp_path: Path) -> None:
    method = FedGen(**SIZES)
    sent = sent_by(small, method)
    nobody = np.zeros(0, np.int64)
    columns = (nobody, nobody, nobody, np.zeros(0), np.zeros(0))
    record = RoundRecord(1, None, None, small.start, None, *columns, state={"sent": sent})
    write_round(tmp_path / "00001.h5", record)
    kept = Round(tmp_path / "00001.h5", small.facts.layout, "a run").state()["sent"]
    assert kept.keys() == sent.keys()
    resumed = method.share(kept, exchange(small))
    assert all(
        resumed[name].tobytes() == value.tobytes() for name, value in method.share(sent, exchange(small)).items()
    )
    # A branch may give the method other sizes; the generator keeps its own.
    trained = [m.train(small.task(sent=which)).weights for m, which in ((method, sent), (FedGen(), kept))]
    assert trained[0].parameters.tobytes() == trained[1].parameters.tobytes()


def test_heads_without_a_bias_in_single_precision_and_a_cohort_of_one(small: Any) -> None:
    layers = torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3, bias=False)
    module = torch.nn.Sequential(*layers)
    start = initial_model(module)
    facts = replace(small.facts, layout=Layout.of(module))
    cohort = small.cohort((10,), label_counts=np.array([[3, 0, 7]]))
    method = FedGen(**SIZES)
    sent = dict(method.share(method.begin(start, facts), Exchange(start, stack([start]), start, cohort, facts)))
    assert {value.dtype for name, value in sent.items() if name != "norm.batches"} == {np.dtype(np.float32)}
    assert sum(value.size for value in sent.values()) == 6 * (4 + 3) + 6 + 4 * 6 + 5 * 6 + 5 + 1
    assert all(np.isfinite(value).all() for value in sent.values())
    task = small.task(x=small.x.float(), start=start, facts=facts, sent=sent, bench=TrainableModel(module))
    for indices in ([7], [3, 30]):
        update = method.train(replace(task, indices=np.array(indices)))
        assert np.isfinite(update.weights.parameters).all()
        assert not update.message


def test_fedgen_refuses_to_leave_its_generator_unused(small: Any) -> None:
    config: Any = None
    assert FedGen(alpha=0.0).resolve(config).beta == 10
    with pytest.raises(FedscopeError, match=r"client.alpha = 0 and client.beta = 0 together .* or --client sgd"):
        FedGen(alpha=0.0, beta=0.0).resolve(config)
