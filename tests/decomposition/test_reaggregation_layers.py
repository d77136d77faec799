"""Servers by layer: every layer by one is that server; of two each makes its own columns; clients keep layers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    RoundRecord,
    Run,
    TensorEntry,
    Weights,
    recorded_matrix,
    write_round,
)
from fedscope.checkpoints.io.errors import list_few
from fedscope.checkpoints.rounds.round import Round
from fedscope.decomposition.reaggregation import aggregate
from fedscope.decomposition.reaggregation.aggregate import Reaggregated, reaggregate
from fedscope.decomposition.reaggregation.analysis import reaggregate as question
from fedscope.decomposition.reaggregation.layers import step_parts
from fedscope.decomposition.reaggregation.requested_servers import layers_given, parts_of, reaggregating_config
from fedscope.decomposition.reaggregation.server_inputs import recorded_cohort
from fedscope.evaluation.evaluator import Evaluator
from fedscope.training import Config, data_of, merge, module_of, preset, train
from fedscope.training.methods.base import Cohort, ServerMethod
from fedscope.training.settings.registry import find, names

BY_LAYER = [name for name in names("servers") if not find("servers", name)().needs_all]
SMALL: dict[str, Any] = {
    "data": {"clients": 6, "partition": "dirichlet:0.5"},
    "client": {"epochs": 1},
    "run": {"rounds": 3, "participation": 0.7, "evaluate_clients": 0, "evaluate_every": 9},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    model = {"model": {"hidden": [8, 6]}}
    return train(Config.read(merge(preset("fedadam"), SMALL, model)), tmp_path_factory.mktemp("runs") / "adam")


def made(run: Run, base: str, *words: str, from_state: bool = False) -> Reaggregated:
    def config(server: str) -> Config:
        return reaggregating_config(run, 3, "fma" if server == "personal" else server)

    servers = [(pattern, config(server), server == "personal") for pattern, server in layers_given(words)]
    parts = parts_of(run.layout, config(base), servers) if words else ()
    (one,) = reaggregate(run, 3, [config(base)], layers=[parts], from_state=from_state)
    return one


def same(one: Weights, other: Weights) -> bool:
    return all(one.arrays()[name].tobytes() == other.arrays()[name].tobytes() for name in one.layout.names)


def put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "put_aside", lambda *_: True)


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("server", BY_LAYER)
def test_every_layer_by_one_server_is_that_server_bit_for_bit(
    run: Run, server: str, disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disk:
        put_aside(monkeypatch)
    own = server == "fedadam"
    whole = made(run, server, from_state=own).weights
    # all at once, a layer each, and of two layers that do not follow each other
    for words in (["*"], ["fc1", "fc2", "head"], ["fc1,head", "/2/"]):
        found = made(run, "fma", *(f"{word}={server}" for word in words), from_state=own)
        assert same(found.weights, whole), words
    assert same(made(run, server, "fc2=" + server, from_state=own).weights, whole)


@pytest.mark.parametrize("disk", [False, True])
def test_each_server_makes_its_own_columns(run: Run, disk: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if disk:
        put_aside(monkeypatch)
    found = made(run, "fedadam", "fc1,head=fedavgm", "fc2=fedsa", from_state=False)
    assert found.by_layer == {"fedavgm": "fresh", "fedsa": "none"}
    expected = {"fc1": "fedavgm", "fc2": "fedsa", "head": "fedavgm"}
    wholes = {server: made(run, server).weights.arrays() for server in ("fedavgm", "fedsa", "fedadam")}
    for name, value in found.weights.arrays().items():
        assert value.tobytes() == wholes[expected[name.partition(".")[0]]][name].tobytes(), name
        assert value.tobytes() != wholes["fedadam"][name].tobytes()


def test_a_recorded_state_goes_to_its_columns(run: Run) -> None:
    found = made(run, "fma", "fc2=fedadam", from_state=True)
    assert found.by_layer == {"fedadam": "recorded"}
    recorded, arrays = run.round(3).read("global").arrays(), found.weights.arrays()
    assert arrays["fc2.weight"].tobytes() == recorded["fc2.weight"].tobytes()
    assert arrays["fc1.weight"].tobytes() != recorded["fc1.weight"].tobytes()
    fresh = made(run, "fma", "fc2=fedadam").weights.arrays()
    assert fresh["fc2.weight"].tobytes() != recorded["fc2.weight"].tobytes()


def test_a_server_sees_its_layers_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[int, ...], ...]] = []
    step = find("servers", "fedadam").step

    def spy(self: Any, state: Any, start: Weights, clients: Weights, cohort: Any) -> Any:
        seen.append((start.parameters.shape, clients.parameters.shape, state["m"].shape))
        return step(self, state, start, clients, cohort)

    monkeypatch.setattr(find("servers", "fedadam"), "step", spy)
    made(run, "fma", "fc1,head=fedadam")
    slices = run.layout.slices
    size = sum(where.stop - where.start for name, where in slices.items() if not name.startswith("fc2"))
    assert seen == [((size,), (len(run.round(3).client_ids), size), (size,))]


def test_clients_on_the_disk_are_read_in_blocks_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.decomposition.reaggregation import layers
    from fedscope.training.methods.base import ServerMethod

    rows = recorded_matrix(run.round(3))
    read, whole = [], type(rows.parameters).blocks
    monkeypatch.setattr(
        type(rows.parameters), "blocks", lambda own: (read.append(block) or (block, x) for block, x in whole(own, 400))
    )
    monkeypatch.setattr(type(rows.parameters), "block", None)  # nothing is read another way
    parts = parts_of(
        run.layout,
        reaggregating_config(run, 3, "fma"),
        [("fc1,head", reaggregating_config(run, 3, "fedavgm"), False)],
    )
    start = run.round(3).read("start")
    steps = [
        (part, part.config.server.init(start.parameters), recorded_cohort(run, run.round(3), part.config))
        for part in parts
    ]
    assert isinstance(parts[0].config.server, ServerMethod)
    found, own = layers.step_parts(steps, start, rows)
    assert own == [None, None]
    assert len(read) > 3
    assert [block.start for block in read[1:]] == [block.stop for block in read[:-1]]
    assert (read[0].start, read[-1].stop) == (0, run.layout.size)
    assert same(found, made(run, "fma", "fc1,head=fedavgm").weights)


@pytest.mark.parametrize("disk", [False, True])
def test_personal_layers_are_each_clients(run: Run, disk: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if disk:
        put_aside(monkeypatch)
    result = question(f"{run.path}@3", "fedavgm", layers={"head": "personal"})
    round_, base = run.round(3), made(run, "fedavgm").weights.arrays()
    evaluator = Evaluator(module_of(run), data_of(run).samples("test"))
    losses, errors = [], []
    for k in round_.client_ids:
        own = round_.client(int(k)).arrays()
        mixed = {name: own[name] if name.startswith("head") else value for name, value in base.items()}
        loss, error = evaluator.models(run.layout.flatten(mixed))
        losses.append(loss[0]), errors.append(error[0])
    row = result.measured[-1]
    assert (row.model, row.server, row.state) == ("fedavgm, head=personal", "fedavgm", "fresh")
    assert (row.clients, row.distance, row.identical) == (len(losses), None, None)
    # bit for bit: the same models on the same samples
    assert [one.loss for one in result.by_client] == losses
    assert [one.client for one in result.by_client] == round_.client_ids.tolist()
    assert (row.loss, row.error) == (np.mean(losses), np.mean(errors))
    assert row.loss_stderr == pytest.approx(np.std(losses, ddof=1) / len(losses) ** 0.5, rel=1e-12)
    # what is kept has the clients' mean there
    fma, kept = made(run, "fma").weights.arrays(), result.models["fedavgm"].arrays()
    assert kept["head.weight"].tobytes() == fma["head.weight"].tobytes()
    assert kept["fc1.weight"].tobytes() == base["fc1.weight"].tobytes()
    # without any layer of its own it is the whole model, and with all of them the client
    every = question(f"{run.path}@3", layers={"*": "personal"})
    clients, _ = evaluator.models(round_.clients())
    assert [one.loss for one in every.by_client] == clients.tolist()


def test_statistics_go_with_their_layer(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run.round(3)
    count = len(before.client_ids)
    draw = np.random.default_rng(0)
    held = {
        "fc1.mean": draw.normal(size=(count, 3)).astype(np.float32),
        "fc2.mean": draw.normal(size=(count, 2)).astype(np.float32),
        "fc2.seen": 7 + np.arange(count),
        "head.mean": draw.normal(size=(count, 2)).astype(np.float32),
    }
    shutil.copytree(run.path, tmp_path / "buffers")
    more = (TensorEntry(name, rows.shape[1:], str(rows.dtype), "buffer") for name, rows in held.items())
    layout = Layout((*run.layout.entries, *more))
    info = json.loads((tmp_path / "buffers/run.json").read_text())
    (tmp_path / "buffers/run.json").write_text(json.dumps({**info, "files": {}, "layout": layout.to_json()}))
    start = Weights(layout, before.read("start").parameters, {name: rows[1] for name, rows in held.items()})
    numbers = (before.client_ids, before.client_samples, before.client_steps, before.client_loss, before.weights)
    path = tmp_path / "buffers/rounds/00003.h5"
    path.unlink()
    record = RoundRecord(3, start, Weights(layout, before.clients().parameters, held), start, None, *numbers)
    write_round(path, record, identity=before.identity)
    other = Run.open(tmp_path / "buffers")
    even = reaggregating_config(other, 3, "fma", {"weighting": "uniform"})
    plain = reaggregating_config(other, 3, "fma")
    parts = parts_of(layout, plain, [("fc2", plain, True), ("fc1", even, False)])
    (found,) = reaggregate(other, 3, [plain], layers=[parts])
    p = before.weights
    # with the p of its own server, and where it is personal each client's own
    assert np.ptp(p) > 0
    np.testing.assert_allclose(found.weights.buffers["fc1.mean"], held["fc1.mean"].mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.weights.buffers["head.mean"], p @ held["head.mean"], rtol=1e-5)
    for k, version in enumerate(found.versions):
        model = version()
        for name in ("fc2.mean", "fc2.seen"):
            assert model.buffers[name].tobytes() == held[name][k].tobytes()
        assert model.buffers["head.mean"].tobytes() == found.weights.buffers["head.mean"].tobytes()
        assert (
            model.arrays()["fc2.weight"].tobytes()
            == before.client(int(before.client_ids[k])).arrays()["fc2.weight"].tobytes()
        )
    # one server of every layer averages them as of the whole
    for server in ("fma", "checkpoints"):
        whole = made(other, server).weights
        assert same(made(other, "fedadam", f"*={server}").weights, whole)
    # of a server with weights of its own by these
    aged, mean = made(other, "checkpoints").weights.buffers, made(other, "fma").weights.buffers
    for disk in (False, True):
        monkeypatch.setattr(aggregate, "put_aside", lambda *_, disk=disk: disk)
        one = made(other, "fma", "fc1=checkpoints")
        assert one.weighing == ("checkpoints",)
        for name, value in one.weights.buffers.items():
            assert value.tobytes() == (aged if name.startswith("fc1") else mean)[name].tobytes(), name
        assert aged["fc1.mean"].tobytes() != mean["fc1.mean"].tobytes()


def test_statistics_alone_are_averaged_as_their_server_averages_parameters() -> None:
    names = ("fc.weight", "norm.mean")
    layout = Layout(
        tuple(TensorEntry(n, (2,), "float32", k) for n, k in zip(names, ("parameter", "buffer"), strict=True))
    )
    start = Weights(layout, np.zeros(2, np.float32), {"norm.mean": np.zeros(2, np.float32)})
    rows = np.arange(6, dtype=np.float32).reshape(3, 2) ** 2
    clients, ids, p = Weights(layout, rows, {"norm.mean": rows}), np.arange(3), np.full(3, 1 / 3)
    cohort = Cohort(round=1, client_ids=ids, samples=np.ones(3, np.int64), steps=np.zeros(3, np.int64), p=p, clients=3)
    plain, aged = (Config.read({"server": {"method": name}}) for name in ("fma", "checkpoints"))
    parts = parts_of(layout, plain, [("norm", aged, False)])
    found, own = step_parts([(part, {}, cohort) for part in parts], start, clients)
    (weights,) = [one for one in own if one is not None]
    np.testing.assert_allclose(weights, [1 / 6, 2 / 6, 3 / 6])
    np.testing.assert_allclose(found.buffers["norm.mean"], weights @ rows, rtol=1e-6)
    np.testing.assert_allclose(found.parameters, rows.mean(0), rtol=1e-6)


def test_a_server_of_all_layers_looks_at_whole_models(run: Run) -> None:
    cut, whole = made(run, "fma", "*=greedy"), made(run, "greedy")
    assert same(cut.weights, whole.weights)
    assert cut.members == whole.members
    assert cut.chooser == whole.chooser == "greedy"
    assert made(run, "fma", "*=checkpoints").weighing == ()  # as there are no statistics
    found = question(f"{run.path}@3", layers={"*": "greedy"}, settings={"server.split": "test"})
    ids = found.attrs["members"]["greedy"]
    assert found.notes()[:2] == [
        f"greedy is the mean of client{'s' if len(ids) > 1 else ''} {list_few(ids)}, chosen on test data",
        "greedy was chosen on the test data that it is measured on, where it looks better than it is",
    ]


def test_a_round_is_read_once_and_every_model_measured_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = Round.clients
    monkeypatch.setattr(Round, "clients", lambda one, *rest: read.append(one.number) or whole(one, *rest))
    counted: list[int] = []
    logits = Evaluator.logits
    monkeypatch.setattr(
        Evaluator, "logits", lambda one, some, rows: counted.append(len(some)) or logits(one, some, rows)
    )
    question(f"{run.path}@3", ["fma", "fedavgm"], layers=["head=personal"])
    # recorded, plain FMA, and two servers with a model a client
    assert (read, counted) == ([3], [2 + 2 * len(run.round(3).client_ids)])


def test_a_pattern_ends_at_the_last_equals_sign() -> None:
    assert layers_given("/(?=conv)/=fedadam") == [("/(?=conv)/", "fedadam")]
    assert layers_given({"head,fc*": "fma"}) == [("head,fc*", "fma")]


def test_the_file_says_what_was_asked(run: Run, tmp_path: Path) -> None:
    result = question(f"{run.path}@3", layers={"head": "personal", "fc2": "fedavgm"}, settings={"momentum": 0.5})
    result.save(tmp_path / "kept")
    again = type(result).load(tmp_path / "kept")
    assert again.numbers() == result.numbers()
    assert again.by_client == result.by_client
    assert again.attrs["layers"] == [["head", "personal"], ["fc2", "fedavgm"]]
    assert again.attrs["layer_settings"][1]["momentum"] == 0.5
    assert [row.model for row in again.measured][-1] == "fedadam, head=personal, fc2=fedavgm (momentum=0.5)"
    assert any(note.startswith("fedavgm keeps m and starts here with an empty state") for note in again.notes())
    words = "each one's model, which has its own head, on the test data"
    assert any(words in note for note in again.notes())


MISTAKES: list[tuple[Any, Any, str]] = [
    (None, ["hed=fedadam"], r"layers 'hed' match none; did you mean \"head\"\?"),
    (None, ["fc=fedadam"], r"layers 'fc' match none; did you mean \"fc\*\"\?"),
    (None, ["head=fedadm"], r"'fedadm' is not a server method .*; did you mean \"fedadam\"\?"),
    (None, ["head=persnal"], r"layers='head=persnal' names no server; did you mean \"personal\"\?"),
    (None, ["head=fma", "h*=fma"], r"both name head; give each layer one server"),
    (None, ["head=fma", "head=fedsa"], r"is given twice; give each layer one server"),
    (None, ["head=greedy"], r"greedy looks at whole models, so it cannot aggregate some layers alone; give fma"),
    ("greedy", ["head=fma"], r"greedy looks at whole models, so it cannot aggregate some layers alone"),
    ("fma", ["*=fedadam"], r"name every layer, so none is left for servers='fma'"),
    (None, ["head"], r"gives no layers a server; write PATTERN=SERVER, as in 'head=personal'"),
    (None, None, r"there is no server to aggregate by; give servers='fedavgm', or layers='head=personal'"),
    (None, ["head=scaffold"], r"that is what clients do, and only servers can be exchanged"),
]


@pytest.mark.parametrize(("servers", "layers", "message"), MISTAKES)
def test_mistakes_end_in_one_sentence(run: Run, servers: Any, layers: Any, message: str) -> None:
    with pytest.raises(FedscopeError, match=message) as caught:
        question(f"{run.path}@3", servers, layers=layers)
    assert "\n" not in str(caught.value)


def test_a_server_that_compares_over_the_model_is_refused_with_that_setting_only(run: Run) -> None:
    with pytest.raises(FedscopeError, match=r"^fedsa looks at whole models"):
        question(f"{run.path}@3", layers={"head": "fedsa"}, settings={"similarity": "model"})
    assert question(f"{run.path}@3", layers={"head": "fedsa"}).measured


def test_a_client_that_diverged_enters_by_the_layers_in_which_it_did(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of weight 0 it has a part where a server counts clients alike, or where everybody's layer is measured."""
    clients, (lost, *_) = run.round(3).clients(), run.round(3).client_ids.tolist()
    clients.parameters[0, clients.layout.slices["head.weight"]] = np.nan
    monkeypatch.setattr(Round, "clients", lambda self: clients)
    # checkpoints weighs all but the newest by 0
    plain, newest = (reaggregating_config(run, 3, *one) for one in (("fma",), ("checkpoints", {"last": 1})))
    parts = parts_of(run.layout, plain, [("head", newest, False)])
    assert lost != run.round(3).client_ids.max()
    assert reaggregate(run, 3, [plain], layers=[parts])[0].outside == (lost,)
    counts = [len(run.partition.clients[k]) for k in run.round(3).client_ids]  # type: ignore[union-attr]
    monkeypatch.setattr(ServerMethod, "weights", lambda self, held: np.where(held == counts[0], 0, held) / held.sum())
    for words, outside in (
        (["fc1=fedsa"], (lost,)),
        (["head=fedsa"], ()),
        (["fc1=personal"], (lost,)),
        (["head=personal"], ()),
    ):
        found = made(run, "fma", *words)
        assert (found.diverged, found.outside) == ((lost,), outside), words
