"""NVFlare's rounds, recorded from its events, on stand-ins for its few classes; test_nvflare_long.py has the real."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import recorder_warnings

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.recorder.nvflare import events
from fedscope.checkpoints.recorder.nvflare.events import EventRounds
from fedscope.checkpoints.rounds.verify import check_round
from fedscope.cli.main import run as command

Arrays = dict[str, np.ndarray]
SITES = ("site-3", "site-1", "site-2")


# --- stand-ins ---


class Shareable(dict[str, Any]):
    """``nvflare.apis.shareable.Shareable`` with a DXO in it."""

    def __init__(
        self,
        model: Any,
        round_: int | None = None,
        kind: str = "WEIGHTS",
        meta: Any = None,
        code: str = "OK",
        answers: int | None = None,
    ) -> None:
        super().__init__(DXO={"kind": kind, "data": model, "meta": meta})
        self.round_, self.code, self.answers = round_, code, answers

    def get_header(self, name: str) -> Any:
        return {"current_round": self.round_}[name]

    def get_cookie(self, name: str) -> Any:
        return {"contribution_round": self.answers}[name]

    def get_return_code(self, default: str) -> str:
        return self.code


class Context:
    """``nvflare.apis.fl_context.FLContext``."""

    def __init__(self, peer: str = "", engine: Any = None, **props: Any) -> None:
        self.peer, self.engine, self.props = peer, engine, {name.strip("0"): value for name, value in props.items()}

    def get_prop(self, name: str, default: Any = None) -> Any:
        return self.props.get(name, default)

    def get_engine(self) -> Any:
        return self.engine

    def get_peer_context(self) -> Any:
        return SimpleNamespace(get_identity_name=lambda: self.peer)


class Job:
    """A controller's events, in their order, of a mean by steps."""

    def __init__(self, path: Path, clients: Any = None, aggregator: Any = None, **about: Any) -> None:
        self.rounds = EventRounds(lambda: fedscope.Recorder(path, source="NVFlare", **about), clients)
        engine = SimpleNamespace(get_component=lambda name: aggregator if name == "aggregator" else None)
        self.fire(events.START_RUN, engine=engine)

    def fire(self, event: str, peer: str = "", engine: Any = None, **props: Any) -> None:
        self.rounds.handle(event, Context(peer, engine, **props))

    def task(self, model: Any, number: int | None, peer: str = "site-1") -> None:
        self.fire(events.TASK, peer, _train_shareable_=Shareable(model, number))

    def reply(self, peer: str, message: Shareable, accepted: bool = True, spoil: bool = True) -> None:
        self.fire(events.ARRIVED, peer, __task_result__=message)
        if spoil:  # as an aggregator may
            for value in message["DXO"]["data"].values():
                value *= 0
        self.fire(events.ACCEPTED, peer, __task_result__=message, _aggregation_accepted=accepted)

    def end(self, model: Any, result: Any = None) -> None:
        self.fire(events.AGGREGATED, _aggregation_result=result)
        self.fire(events.UPDATED, global_model={"weights": model, "meta": {}})

    def close(self) -> None:
        self.fire(events.END_RUN)

    def play(self, number: int, start: Arrays, models: Mapping[str, Arrays], end: Arrays) -> None:
        for peer in models:
            self.task(start, number, peer)
        for peer, own in models.items():
            steps = {"NUM_STEPS_CURRENT_ROUND": 10 * int(peer[-1])}
            self.reply(peer, Shareable(copy(own), meta=steps, answers=number))
        self.end(end)


def copy(model: Arrays) -> Arrays:
    return {name: value.copy() for name, value in model.items()}


def model(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "a.weight": np.asfortranarray(rng.normal(size=(4, 3)).astype(np.float32)),
        "a.scale": rng.normal(size=4),
        "norm.num_batches_tracked": np.array(seed, np.int64),
    }


def cohort(number: int) -> dict[str, Arrays]:
    return {peer: model(10 * number + int(peer[-1])) for peer in SITES}


def same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Bit for bit; of two types of numbers the narrower is read as the wider."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].shape == value.shape, name
        assert found[name].astype(value.dtype).tobytes() == value.tobytes(), name


def told(work: Callable[[], Any]) -> list[str]:
    """What is warned of, but for statistics, of which these servers know nothing."""
    return [one for one in recorder_warnings.told(work) if "statistics were not averaged" not in one]


# --- what is recorded ---


@pytest.mark.filterwarnings("ignore:.*statistics were not averaged")
def test_what_clients_sent_is_recorded_before_an_aggregator_spoils_it(tmp_path: Path) -> None:
    job, start = Job(tmp_path / "run"), model(0)
    for t in range(3):
        sent, end = copy(start), {name: np.asarray(value + 0.5) for name, value in model(t + 5).items()}
        job.play(t, sent, cohort(t), end)
        for value in sent.values():  # the loop goes on with its arrays
            value *= 0
        same(Run.open(tmp_path / "run").round(t + 1).read("start").arrays() if flushed(job) else {}, start)
        start = {name: value.astype(start[name].dtype) for name, value in end.items()}
    job.close()
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    assert run.info["source"] == "NVFlare"
    assert [entry.stored or entry.dtype for entry in run.layout.entries] == ["float32", "float64", "int64"]
    for t in run.rounds:
        round_ = run.round(t)
        assert check_round(round_).faults == ()
        assert round_.client_ids.tolist() == [1, 2, 3]
        np.testing.assert_allclose(round_.weights, [1 / 6, 2 / 6, 3 / 6])
        for peer, own in cohort(t - 1).items():
            same(round_.client(int(peer[-1])).arrays(), own)
    same(run.round(3).read("global").arrays(), start)
    fedscope.Recorder(tmp_path / "run", resume=True).close()  # the folder is given back


def flushed(job: Job) -> bool:
    rounds = job.rounds._rounds
    assert rounds is not None
    return rounds.recorder.flush() > 0


def test_differences_are_added_to_the_start(tmp_path: Path) -> None:
    job, start = Job(tmp_path / "run"), model(0)
    job.task(start, 0)
    change = {name: model(7)[name] for name in ("a.weight", "a.scale")}  # without what is not trained
    job.reply("site-1", Shareable(copy(change), kind="WEIGHT_DIFF"))
    job.end(start)
    job.close()
    expected = {**start, **{name: start[name] + change[name] for name in change}}
    same(Run.open(tmp_path / "run").round(1).client(1).arrays(), expected)


def test_a_collection_holds_the_model_beside_what_scaffold_sends(tmp_path: Path) -> None:
    def collection(arrays: Arrays, round_: int | None = None) -> Shareable:
        inner = SimpleNamespace(data_kind="WEIGHTS", data=arrays, meta={"NUM_STEPS_CURRENT_ROUND": 4})
        return Shareable({"_model_weights_": inner, "scaffold_c_diff": None}, round_, "COLLECTION")

    job = Job(tmp_path / "run")
    job.fire(events.TASK, _train_shareable_=collection(model(0), 0))
    job.reply("site-1", collection(model(1)), spoil=False)
    job.reply("site-2", Shareable(model(2), meta={"NUM_STEPS_CURRENT_ROUND": 12}), spoil=False)
    job.end(model(0))
    job.close()
    round_ = Run.open(tmp_path / "run").round(1)
    same(round_.client(1).arrays(), model(1))
    np.testing.assert_allclose(round_.weights, [0.25, 0.75])


def test_weights_are_those_of_the_result_or_steps_times_factors(tmp_path: Path) -> None:
    factors = {"": {"site-1": 0.5, "site-2": 2.0}}  # which sum to nothing in particular
    for name, aggregator in (("nested", factors), ("flat", factors[""]), ("told", {})):
        job = Job(tmp_path / name, aggregator=SimpleNamespace(aggregation_weights=aggregator))
        job.task(model(0), 0)
        for k, meta in (
            (1, {"NUM_STEPS_CURRENT_ROUND": np.int64(30)}),
            (2, {}),
            (3, {"NUM_STEPS_CURRENT_ROUND": "many"}),
        ):
            job.reply(f"site-{k}", Shareable(model(k), meta=meta))
        sites = [{"name": "site-1", "weight": 15.0}, {"name": "site-2", "weight": 2.0}]
        about = {"metrics_aggregation_info": {"site_weights": sites}}
        result = SimpleNamespace(meta=about, metrics={"train_loss": 0.25, "accuracy": 0.5})
        job.end(model(0), result if name == "told" else None)
        job.close()
        round_ = Run.open(tmp_path / name).round(1)
        np.testing.assert_allclose(round_.weights, [15 / 18, 2 / 18, 1 / 18])
        assert round_.metrics.get("train_loss") == (0.25 if name == "told" else None)


@pytest.mark.parametrize(("aggregator", "weights"), [(None, [0.25, 0.75]), (object(), [0.0, 1.0])])
def test_no_steps_weigh_nothing_where_an_aggregator_takes_them_so(
    aggregator: Any, weights: list[float], tmp_path: Path
) -> None:
    """0 steps weighed 1; NVFlare's FedAvg takes them so, and its aggregators do not."""
    job = Job(tmp_path / "run", aggregator=aggregator)
    job.task(model(0), 0)
    for k, steps in ((1, 0), (2, np.float32(3))):
        job.reply(f"site-{k}", Shareable(model(k), meta={"NUM_STEPS_CURRENT_ROUND": steps}))
    job.end(model(0))
    job.close()
    np.testing.assert_allclose(Run.open(tmp_path / "run").round(1).weights, weights)


@pytest.mark.usefixtures("quiet")
def test_who_is_refused_fails_or_never_answers_is_no_client(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for peer in (*SITES, "site-9"):
        job.task(model(0), 4, peer)
    job.reply("site-1", Shareable(model(1)))
    job.reply("site-2", Shareable(model(2)), accepted=False)
    job.reply("site-3", Shareable(model(3), code="EXECUTION_EXCEPTION"))
    job.reply("site-3", Shareable({}, kind="METRICS"))
    job.end({name: value.astype(float) for name, value in model(1).items()})
    job.close()
    run = Run.open(tmp_path / "run")
    assert run.round(1).client_ids.tolist() == [1]
    assert run.info["client_names"] == {"1": "site-1"}


def test_a_late_answer_is_left_out_and_told(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.play(3, model(0), cohort(0), model(0))
    job.reply("site-1", Shareable(model(9), answers=3))  # between rounds: in no mean
    job.task(model(0), 4)
    job.reply("site-2", Shareable(model(5), answers=4))
    late = told(lambda: job.reply("site-1", Shareable(model(9), answers=3)))
    assert late == [
        f"{tmp_path}/run: client site-1 answers round 3 in round 4, and its model is averaged all the same; the run "
        "leaves it out, since it began from another model"
    ]
    job.fire(events.AGGREGATED)
    job.reply("site-3", Shareable(model(6), answers=4))  # accepted, and not in the mean any more
    job.fire(events.UPDATED, global_model={"weights": model(0)})
    job.close()
    assert Run.open(tmp_path / "run").round(2).client_ids.tolist() == [2]


def test_a_client_that_answers_twice(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.task(model(0), 0)
    for weight in (10, 20):  # the same model: its weights add up
        job.reply("site-1", Shareable(model(1), meta={"NUM_STEPS_CURRENT_ROUND": weight}))
    job.reply("site-2", Shareable(model(2), meta={"NUM_STEPS_CURRENT_ROUND": 10}))
    assert told(lambda: job.reply("site-2", Shareable(model(3)))) == [
        f"{tmp_path}/run: client site-2 is in one round twice, with two models; the run holds the first, so that "
        "global is not the mean of the clients there; have NVFlare take each once"
    ]
    job.end(model(0))
    job.close()
    round_ = Run.open(tmp_path / "run").round(1)
    same(round_.client(2).arrays(), model(2))
    np.testing.assert_allclose(round_.weights, [0.75, 0.25])


def test_names_have_the_same_numbers_in_every_run_whoever_answers_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, order in (("a", ("hospital", "clinic", "site-7")), ("b", ("site-7", "clinic", "hospital"))):
        job = Job(tmp_path / name)
        job.task(model(0), 0)
        for peer in order:
            job.reply(peer, Shareable(model(len(peer))))
        job.end(model(0))
        job.close()
        run = Run.open(tmp_path / name)
        assert run.info["client_names"] == {"0": "clinic", "1": "hospital", "7": "site-7"}
        same(run.round(1).client(1).arrays(), model(len("hospital")))
    capsys.readouterr()
    assert command(["ls", str(tmp_path / "a")]) == 0
    assert "names         0 clinic, 1 hospital, 7 site-7" in capsys.readouterr().out


def test_a_run_that_is_gone_on_with_keeps_its_numbers(tmp_path: Path) -> None:
    for t, peers in enumerate((("b", "c"), ("a", "c"))):
        job = Job(tmp_path / "run", resume=t > 0)
        job.task(model(0), t)
        for peer in peers:
            job.reply(peer, Shareable(model(ord(peer))))
        said = told(lambda: job.end(model(0)))  # noqa: B023, called at once
        assert ["a came after the first round" in one for one in said] == [True] * t
        job.close()
    round_ = Run.open(tmp_path / "run").round(2)
    assert round_.client_ids.tolist() == [1, 2]  # c is 1, as before, and a came later
    same(round_.client(1).arrays(), model(ord("c")))


def test_names_that_come_later_are_told_unless_they_say_their_number_or_were_given(tmp_path: Path) -> None:
    def play(name: str, clients: Any, late: str) -> list[str]:
        job = Job(tmp_path / name, clients)
        for t, peers in enumerate((("a", "b"), ("a", late))):
            job.task(model(0), t)
            for peer in peers:
                job.reply(peer, Shareable(model(1)))
            said = told(lambda: job.end(model(0)))
        job.close()
        return said

    assert play("free", None, "c") == [
        f"{tmp_path}/free: c came after the first round, so run.json does not say which number it has; give all names "
        "in the order of their numbers, as clients=[...]"
    ]
    assert play("numbered", None, "site-5") == []
    assert play("given", ["b", "c", "a"], "c") == []
    assert Run.open(tmp_path / "given").round(2).client_ids.tolist() == [1, 2]
    (sentence,) = play("other", ["a", "b"], "c")
    assert sentence.endswith("client 'c' is not among clients= (a, b); give all names, or leave clients= out")
    assert Run.open(tmp_path / "other").rounds == (1,)


def test_a_controller_without_numbers_of_rounds(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for t in range(2):
        job.task(model(t), None)
        job.task(model(77), None)  # the same round, to another client
        job.reply("site-1", Shareable(model(t + 1)))
        job.end(model(0))
    job.task(model(0), None)  # to be validated
    job.close()
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2)
    same(run.round(2).read("start").arrays(), model(1))


def test_a_controller_that_gives_up_a_round_begins_anew(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.task(model(8), 0)
    job.reply("site-2", Shareable(model(9)))
    job.play(1, model(0), {"site-1": model(1)}, model(1))
    job.close()
    round_ = Run.open(tmp_path / "run").round(1)
    assert round_.client_ids.tolist() == [1]
    same(round_.read("start").arrays(), model(0))


def test_clients_in_threads_of_their_own(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.task(model(0), 0)

    def answer(k: int) -> None:
        job.task(model(0), 0)
        with gate:  # as the server's own lock has it
            job.reply(f"site-{k}", Shareable(model(k)))

    gate = threading.Lock()
    threads = [threading.Thread(target=answer, args=(k,)) for k in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    job.end(model(0))
    job.close()
    round_ = Run.open(tmp_path / "run").round(1)
    for k in range(1, 9):
        same(round_.client(k).arrays(), model(k))


def test_tensors_and_what_was_left_on_the_disk(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Lazy:
        def materialize(self) -> Any:
            return torch.arange(3.0)

    job = Job(tmp_path / "run")
    start = {"w": torch.zeros(3), "b": torch.zeros(2, dtype=torch.bfloat16)}
    job.task(start, 0)
    changed = {"w": Lazy(), "b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)}
    job.reply("site-1", Shareable(changed, kind="WEIGHT_DIFF"), spoil=False)
    for value in start.values():
        value += 1
    job.end({"w": torch.ones(3, dtype=torch.float64), "b": torch.zeros(2, dtype=torch.bfloat16)})
    job.close()
    run = Run.open(tmp_path / "run")
    assert [entry.stored or entry.dtype for entry in run.layout.entries] == ["float32", "bfloat16"]
    arrays = run.round(1).client(1).arrays()
    assert {name: value.tolist() for name, value in arrays.items()} == {"w": [0.0, 1.0, 2.0], "b": [1.5, -2.0]}
    assert run.round(1).read("start").arrays()["w"].tolist() == [0.0] * 3


def test_memory_of_two_rounds_of_clients_at_most(tmp_path: Path) -> None:
    clients, layers, size = 20, 8, 25_000
    whole = clients * layers * size * 4

    def large(value: float) -> Arrays:
        return {f"layer{i}.weight": np.full(size, value, np.float32) for i in range(layers)}

    job = Job(tmp_path / "run")
    job.play(0, large(0), {"site-1": large(1)}, large(0))  # loads what is needed
    flushed(job)
    tracemalloc.start()
    try:
        for t in (1, 2):
            job.task(large(0), t)
            for k in range(1, clients + 1):
                job.reply(f"site-{k}", Shareable(large(k)))
            job.end(large(0))
            assert flushed(job)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    job.close()
    assert whole < peak <= 2 * whole
    assert Run.open(tmp_path / "run").round(3).client(20).arrays()["layer7.weight"][-1] == 20


# --- what cannot be recorded ---


def test_a_round_that_cannot_be_recorded_is_told_and_the_next_one_is(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")

    def spoilt(number: int, message: Shareable) -> list[str]:
        def play() -> None:
            job.task(model(0), number)
            job.reply("site-1", Shareable(model(1)))
            job.reply("site-2", message, spoil=False)
            job.task(model(0), number, "site-3")  # which must not begin the round anew
            job.reply("site-3", Shareable(model(3)))
            job.end(model(0))

        return told(play)

    what = f"{tmp_path}/run: round {{}} of NVFlare is not recorded, so later ones have lower numbers in the run: "
    secret = Shareable({**model(1), "a.scale": object()})
    assert spoilt(0, secret) == [
        what.format(0) + "a.scale is of type object, not an array of numbers; encrypted models cannot be recorded"
    ]
    other = Shareable({"head": np.zeros(3)}, kind="WEIGHT_DIFF")
    assert spoilt(1, other) == [
        what.format(1) + "a client sends a change of head, which the model that was sent does not have"
    ]
    (sentence,) = spoilt(2, Shareable({"head": np.zeros(3)}))
    assert "client 2 lacks a.weight, a.scale, norm.num_batches_tracked and has head" in sentence
    assert told(lambda: job.play(3, model(0), {}, model(0))) == []  # nobody is sent anything
    job.task(model(0), 4)
    assert told(lambda: job.end(model(0))) == [what.format(4) + "no client sent a model"]
    job.play(5, model(0), cohort(5), model(0))
    job.close()
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1,)
    same(run.round(1).client(3).arrays(), model(53))


def test_a_controller_that_never_ends_a_round_is_told(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.task(model(0), 0)
    job.reply("site-1", Shareable(model(1)))
    assert told(job.close) == [
        f"{tmp_path}/run: clients sent models, and no round of NVFlare ended; have the controller call update_model, "
        "as FedAvg and ScatterAndGather do"
    ]
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_folder_that_is_taken_by_the_time_of_the_job_does_not_end_it(tmp_path: Path) -> None:
    Job(tmp_path / "run").play(0, model(0), cohort(0), model(0))

    def again() -> None:
        job = Job(tmp_path / "run")
        job.play(0, model(0), cohort(0), model(0))
        job.close()

    (sentence,) = told(again)
    assert sentence.startswith("this job of NVFlare is not recorded: ")


# --- the line ---


class FedJob:
    """``nvflare.job_config.api.FedJob``."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}
        self.job = SimpleNamespace(app_packages=["mine"])

    def to_server(self, component: Any, id: str) -> None:
        self.components[id] = component

    def set_app_packages(self, packages: list[str]) -> None:
        self.job.app_packages = packages


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has NVFlare there, in a version, with the one class that is needed of it."""
    widget = SimpleNamespace(Widget=type("Widget", (), {"__init__": lambda self: None}))

    def install(version: str) -> None:
        monkeypatch.setattr(importlib.metadata, "version", lambda name: {"nvflare": version}[name])
        monkeypatch.setattr("fedscope.checkpoints.recorder.framework_rounds.version", importlib.metadata.version)
        for name, module in (("nvflare", None), ("nvflare.widgets", None), ("nvflare.widgets.widget", widget)):
            monkeypatch.setitem(sys.modules, name, module or SimpleNamespace())
        monkeypatch.delitem(sys.modules, "fedscope.checkpoints.recorder.nvflare.widget", raising=False)

    return install


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_line_gives_the_server_a_component_that_goes_through_files(
    wrapped: bool, installed: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("2.9.3")
    monkeypatch.chdir(tmp_path)
    inner = FedJob()
    job: Any = SimpleNamespace(_job=inner) if wrapped else inner
    about = {"settings": {"client": {"lr": 0.1}}, "seed": np.int64(3), "method": "FedX", "keep": "sample:1"}
    given = fedscope.record_nvflare(job, "run", model="cnn", data="digits", clients=("b", "site-1"), **about)
    assert given is job
    component = inner.components["fedscope"]
    assert inner.job.app_packages == ["mine", "fedscope"]
    kind = type(component)
    assert f"{kind.__module__}.{kind.__name__}" == "fedscope.checkpoints.recorder.nvflare.widget.RoundRecorder"
    # as NVFlare writes and reads it: what is kept under the names of the arguments
    names = kind.__init__.__code__.co_varnames[1 : kind.__init__.__code__.co_argcount]
    args = json.loads(json.dumps({name: getattr(component, name) for name in names}))
    assert args["path"] == str(tmp_path / "run")
    monkeypatch.chdir("/")
    again = kind(**args)
    engine = SimpleNamespace(get_component=lambda name: None)
    again.handle_event(events.START_RUN, Context(engine=engine))
    again.handle_event(events.TASK, Context(_train_shareable_=Shareable(model(0), 0)))
    again.handle_event(events.ARRIVED, Context("site-1", __task_result__=Shareable(model(1))))
    again.handle_event(events.ACCEPTED, Context("site-1", _aggregation_accepted=True))
    again.handle_event("_round_done", Context())
    again.handle_event(events.UPDATED, Context(global_model={"weights": model(1)}))
    again.handle_event(events.END_RUN, Context())
    run = Run.open(tmp_path / "run")
    assert run.round(1).client_ids.tolist() == [1]
    said = {name: run.info[name] for name in ("model", "method", "seed", "settings", "client_names")}
    assert said == {
        "model": "cnn",
        "method": "FedX",
        "seed": 3,
        "settings": {"client.lr": 0.1},
        "client_names": {"0": "b", "1": "site-1"},
    }


def test_another_version_is_told_and_none_is_refused(
    installed: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("2.6.1")
    assert told(lambda: fedscope.record_nvflare(FedJob(), tmp_path / "run")) == [
        "nvflare 2.6.1 is installed, and recording was tested with 2.9.0; look at the run with fedscope ls, or pip "
        "install nvflare==2.9.0"
    ]

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("fedscope.checkpoints.recorder.framework_rounds.version", missing)
    with pytest.raises(FedscopeError, match=r"^nvflare is not installed; pip install nvflare==2\.9\.0$"):
        fedscope.record_nvflare(FedJob(), tmp_path / "run")


@pytest.mark.parametrize(
    ("job", "settings", "message"),
    [
        (object(), {}, "object is not a job of NVFlare: it has no to_server; give a recipe or a FedJob"),
        (
            FedJob(),
            {"data": (np.zeros(3), np.zeros(3))},
            "data= is a tuple without a name, and a job of NVFlare is sent",
        ),
        (FedJob(), {"keep": "last:3"}, "counts from the last round"),
        (FedJob(), {"clients": ["a", "a"]}, "clients= names 'a' twice; give each name once"),
        (FedJob(), {"seed": -1}, "seed=-1 is not a whole number"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_the_job_is_sent(
    job: Any, settings: dict[str, Any], message: str, installed: Callable[[str], None], tmp_path: Path
) -> None:
    installed("2.9.0")
    with pytest.raises(FedscopeError) as raised:
        fedscope.record_nvflare(job, tmp_path / "run", **settings)
    assert message in str(raised.value)
    assert getattr(job, "components", {}) == {}


def test_a_folder_that_is_taken_is_refused(installed: Callable[[str], None], tmp_path: Path) -> None:
    installed("2.9.0")
    with fedscope.Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[model(0)])
    with pytest.raises(FedscopeError, match="holds a run with 1 round; give force=True to replace it, or resume=True"):
        fedscope.record_nvflare(FedJob(), tmp_path / "run")
    for words in ({"resume": True}, {"force": True}):
        fedscope.record_nvflare(FedJob(), tmp_path / "run", **words)


def test_reading_events_needs_neither_nvflare_nor_torch() -> None:
    code = """
        import sys
        sys.modules["nvflare"] = sys.modules["torch"] = None
        import fedscope.checkpoints.recorder.nvflare.events
        fedscope.record_nvflare
        from fedscope.checkpoints.recorder.nvflare.widget import RoundRecorder
        try:
            RoundRecorder("run")
            raise SystemExit("it was made")
        except fedscope.FedscopeError as error:
            assert str(error) == "nvflare is not installed; pip install nvflare==2.9.0", error
    """
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code)], check=True)
