"""``fedscope cka`` as a user gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import FedscopeError, Run, load_model, write_file
from fedscope.cli.main import fedscope, run
from fedscope.decomposition.cka.analysis import cka
from fedscope.decomposition.cka.model_result import ModelCKA
from fedscope.decomposition.cka.result import ClientCKA
from fedscope.training import data_of, module_of

COMMAND = "cka"
LAYERS = ["fc1", "output"]
MODELS = ["runs/fma@1", "runs/fma@2"]
TINY = "--clients 8 --participation 0.5 --rounds 4 --set model.hidden=[16]"
RUNS = {
    "ima": f"{TINY} --method ima --set average.start=3",
    "fma": f"{TINY} --method fma",
    "few": f"{TINY} --method fma --set record.clients=every:2",
    "one": f"{TINY} --method fma --participation 0.125 --rounds 1",
}


def test_a_run_is_its_rounds_in_one_file_and_one_figure(runs: Path, said: Any) -> None:
    words = said("runs/ima")
    base = "runs/ima/figures/cka-test-1-last"
    assert words.splitlines()[1:] == [f"  {base}.{end}" for end in ("nc", "pdf", "png")]
    made = ClientCKA.load(f"{base}.nc")
    assert [one.round for one in made.rounds] == [1, 4]
    first, last = made.rounds
    np.testing.assert_array_equal(last.client_ids, Run.open("runs/ima").round(4).client_ids)
    mean = f"{first.mean:.3g} ± {first.mean_stderr:.1g} in round 1, {last.mean:.3g} ± "
    assert words.startswith(f"ima, output: mean CKA between clients {mean}")
    assert f"with global {last.mean_global:.3g}" in words
    assert "; ± one standard error over minibatches\n" in words
    assert (made.attrs["split"], made.attrs["samples"], made.attrs["batches"]) == ("test", 360, 8)
    assert "addresses" not in made.attrs
    # the same again is read back, another is not overwritten
    png = Path(f"{base}.png").read_bytes()
    assert said("runs/ima") == words
    assert Path(f"{base}.png").read_bytes() == png
    with pytest.raises(FedscopeError, match=r"cka-test-1-last\.nc holds another result, of --batch \d+ \(not \d+\)"):
        said("runs/ima", "--batch", "60")
    with pytest.raises(FedscopeError, match=r"of --seed 0 \(not "):
        said("runs/ima", "--seed", "1")


def test_test_errors_are_those_measured_while_training(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cka", "runs/fma", "--rounds", "1,last", "--out", "e"]) == 0
    measured = Run.open("runs/fma").metrics()
    found = ClientCKA.load("e.nc").rounds
    by_round = dict(zip(measured["round"].astype(int).tolist(), measured["test_error"].tolist(), strict=True))
    assert [one.test_error for one in found] == [by_round[one.round] for one in found]
    # a run of another program, or an old one, may have no such table
    Path("runs/fma/metrics.csv").unlink()
    assert run(["cka", "runs/fma", "--rounds", "1,last", "--out", "none"]) == 0
    assert all(one.test_error != one.test_error for one in ClientCKA.load("none.nc").rounds)


def test_test_errors_are_drawn_alone_for_runs_and_refused_for_models(
    runs: Path, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(ClientCKA, "figures", lambda self, width, title, **drawing: asked.append(drawing) or {})
    words = said("runs/fma", "--rounds", "1,last", "--out", "p")
    assert said("runs/fma", "--rounds", "1,last", "--out", "p", "--panel", "error") == words
    assert asked == [{}, {"panels": ("error",)}]
    with pytest.raises(FedscopeError, match=r"--panel error is for whole runs, and models have one matrix; leave it"):
        said(*MODELS, "--panel", "error")


def test_clients_and_addresses_give_the_same_numbers(runs: Path, said: Any) -> None:
    said("runs/fma", "--rounds", "2", "--layer", "fc1", "--estimator", "biased")
    made = ClientCKA.load("runs/fma/figures/cka-test-2-fc1-biased.nc")
    (one,) = made.rounds
    clients = [f"runs/fma@2/client-{k}" for k in one.client_ids]
    words = said(*clients, "runs/fma@2/global", "--layer", "fc1", "--estimator", "biased", "--out", "m")
    assert words.startswith("fc1: CKA 0.")
    assert words.splitlines()[1:] == ["  m.nc", "  m.pdf", "  m.png"]
    models = ModelCKA.load("m.nc")
    np.testing.assert_allclose(models.cka[:4, :4], one.cka, rtol=1e-9)
    np.testing.assert_allclose(models.cka[:4, 4], one.cka_global, rtol=1e-9)
    assert models.labels[-1] == "fma@2/global"
    assert models.attrs["estimator"] == "biased"


def test_several_layers_and_runs_are_results_of_their_own(runs: Path, said: Any) -> None:
    words = ["runs/ima", "runs/fma", "--layer", "fc1", "--layer", "output", "--limit", "60", "--batch", "20"]
    out = json.loads(said(*words, "--json", "--out", "c"))
    assert out["files"] == [
        "c.ima.fc1.nc", "c.ima.output.nc", "c.fma.fc1.nc", "c.fma.output.nc",
        "c.fc1.pdf", "c.fc1.png", "c.output.pdf", "c.output.png",
    ]  # fmt: skip
    assert all(Path(path).exists() for path in out["files"])
    rows = [(row["run"], row["layer"], row["round"]) for row in out["rounds"]]
    assert rows == [(name, layer, t) for name in ("ima", "fma") for layer in ("fc1", "output") for t in (1, 4)]
    made = ClientCKA.load("c.fma.output.nc")
    assert (made.run, made.layer, made.attrs["batches"]) == ("fma", "output", 3)
    assert out["rounds"][-1]["mean"] == made.rounds[-1].mean
    # a run and a layer alone are the same numbers
    said("runs/fma", "--limit", "60", "--batch", "20", "--out", "alone")
    np.testing.assert_allclose(ClientCKA.load("alone.nc").rounds[1].cka, made.rounds[1].cka, rtol=1e-12)


@pytest.mark.parametrize(
    ("words", "given", "settings"),
    [
        (["runs/ima", "runs/fma", "--layer", "fc1", "--layer", "output"], ["runs/ima", "runs/fma"], {"layer": LAYERS}),
        (["runs/fma@all/global", "--estimator", "biased"], "runs/fma@all/global", {"estimator": "biased"}),
        (["runs/fma@1", "runs/fma@2", "--layer", "fc1", "--layer", "output"], MODELS, {"layer": LAYERS}),
    ],
)
def test_the_function_says_the_same(
    runs: Path, said: Any, words: list[str], given: Any, settings: dict[str, Any]
) -> None:
    out = json.loads(said(*words, "--limit", "60", "--json", "--out", "c"))
    made = cka(given, limit=60, **settings)
    assert made.numbers() == {key: value for key, value in out.items() if key != "files"}
    files = [path.name.replace("p", "c", 1) for path in made.save("p")]
    drawn = [f"c{end}.{kind}" for end in made.figures() for kind in ("pdf", "png")]
    assert files + drawn == out["files"]


def test_modules_and_state_dicts_are_models(runs: Path) -> None:
    """As they are in memory, on data of one's own."""
    addresses = ["runs/fma@1/global", "runs/fma@4/global", "runs/fma@4/start"]
    data, modules = data_of(Run.open("runs/fma")), []
    for address in addresses:
        module = module_of(Run.open("runs/fma"))
        module.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in load_model(address).weights.arrays().items()})
        modules.append(module)
    named = cka(addresses, layer="fc1", limit=100)
    assert isinstance(named, ModelCKA)
    for models in (modules, [modules[0], modules[1].state_dict(), load_model(addresses[2])]):
        made = cka(models, layer="fc1", limit=100, data=data)
        assert isinstance(made, ModelCKA)
        np.testing.assert_array_equal(made.cka, named.cka)
    with pytest.raises(FedscopeError, match=r"^\w+ 1 is one model, and .* two or more; name another$"):
        cka(modules[0], data=data)
    with pytest.raises(FedscopeError, match=r"^runs/fma is a run, and \w+ 2 a model; give runs only"):
        cka(["runs/fma", modules[0]])


def test_every_option_reaches_the_numbers(runs: Path, said: Any) -> None:
    ways = {
        "plain": [],
        "biased": ["--estimator", "biased"],
        "batch": ["--batch", "60"],
        "seed": ["--seed", "1"],
        "layer": ["--layer", "fc1"],
        "split": ["--split", "train"],
        "limit": ["--limit", "200"],
        "precision": ["--precision", "bf16"],
    }
    found = []
    for name, words in ways.items():
        out = json.loads(said("runs/fma", "--rounds", "2", *words, "--json", "--out", name))
        found.append(out["rounds"][0]["mean"])
    assert len(set(found)) == len(ways)


def test_rounds_and_files_stand_side_by_side(runs: Path, said: Any) -> None:
    write_file("best.pt", load_model("runs/fma@last/global").weights)
    out = json.loads(said("runs/fma@all/global", "best.pt", "--json", "--limit", "60"))
    assert out["models"] == ["fma@1/global", "fma@2/global", "fma@3/global", "fma@4/global", "best"]
    assert out["cka"]["output"][3][4] == pytest.approx(1.0)
    assert Path(out["files"][0]).parent == Path("runs/fma/figures")


def test_clients_without_their_start_suffice(runs: Path, said: Any, rewrite: Any) -> None:
    rewrite("runs/fma", 2, without=("start", "global"))
    assert Run.open("runs/fma").round(2).models == ()
    words = said("runs/fma", "--rounds", "2", "--out", "w")
    assert "global" not in words
    assert np.isnan(ClientCKA.load("w.nc").rounds[0].cka_global).all()


def test_a_client_that_answers_all_alike_is_named(runs: Path, said: Any) -> None:
    live, dead = load_model("runs/fma@2/global").weights, load_model("runs/fma@2/start").weights
    dead.parameters[:] = 0.0
    write_file("live.pt", live)
    write_file("dead.pt", dead)
    given = ["live.pt", "dead.pt", "runs/fma@1/global", "--out", "d"]
    words = said(*given)
    assert "; not defined for dead, whose features are constant, not finite, or too noisy for so few samples" in words
    assert np.isnan(ModelCKA.load("d.nc").cka[1]).all()
    out = json.loads(said(*given, "--json"))
    assert out["cka"]["output"][1] == [None] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/fma", "--layer", "f1"], r"^layers 'f1' match none; did you mean \"fc1\"\?$"),
        (["runs/fma", "--layer", "f*,hed"], r"^layers 'hed' match none; did you mean \"head\"\?$"),
        (["runs/fma@1", "runs/fma@2", "--layer", "/zz/"], r"^layers '/zz/' match none; the model has fc1, "),
        (["runs/fma", "--layer", "fc1", "--layer", "fc1"], r"layer fc1 is given 2 times"),
        (["runs/few", "--rounds", "1"], r"runs/few@1: the clients of round 1 were not recorded; rounds 2, 4 have them"),
        (["runs/one", "--rounds", "1"], r"runs/one@1 has a cohort of one, so there is no pair; .* \(--clients, --part"),
        (["runs/fma", "--limit", "3"], r"the unbiased estimator of HSIC needs 4 samples, not 3 in all; give more"),
        (["runs/fma", "--rounds", "9"], r"--rounds 9: runs/fma has no round 9; it has 1 to 4"),
        (["runs/fma@2", "--rounds", "1"], r"--rounds 1 is for whole runs, but runs/fma@2 names a model"),
        (["runs/fma@2"], r"runs/fma@2 is one model, and .* compared by fedscope cka runs/fma --rounds 2\)"),
        (["runs/fma", "runs/ima@2"], r"runs/fma is a run, and runs/ima@2 a model; give runs only, or models only"),
        (["runs/fma", "runs/fma"], r"2 of the runs are called 'fma'; rename a folder, and give a run only once"),
        (["runs/fma@2", "runs/fma@2"], r"fma@2 stands for 2 of the models"),
        (["runs/nothing"], r"runs/nothing does not exist; the runs in runs are"),
        (["runs"], r"runs"),
        (["best.pt"], r"best.pt is one model, and similarity is between two or more; name another$"),
        (["runs/fma@1", "runs/fma@2", "--model", "cnn"], r"fma@1 does not fit the architecture of cnn: conv1"),
        (["runs/fma", "--model", "mlp"], r"does not fit the architecture of mlp"),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, said: Any, words: list[str], message: str) -> None:
    with pytest.raises(FedscopeError, match=message) as caught:
        said(*words)
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_exist_is_said_before_what_it_lacks(runs: Path) -> None:
    Path("b.pt").touch()
    with pytest.raises(FedscopeError, match=r"^a\.pt does not exist; \. has b\.pt; give one of them$"):
        fedscope.main(["cka", "b.pt", "a.pt"], standalone_mode=False)
    with pytest.raises(FedscopeError, match=r"^b\.pt is a plain file, which does not say its data; give --data"):
        fedscope.main(["cka", "b.pt", "b.pt"], standalone_mode=False)


def test_a_pattern_stands_for_the_layers_that_it_names(runs: Path, said: Any) -> None:
    """Each is a result, as by its own name; of runs, of models by address, of files and of modules."""
    small = ["--limit", "60", "--batch", "20"]
    said("runs/fma", "--layer", "fc1", "--layer", "output", *small, "--out", "own")
    said("runs/fma", "--layer", "f*,fc1", "--layer", "output", *small, "--out", "cut")
    for layer in ("fc1", "output"):
        own, cut = (ClientCKA.load(f"{name}.{layer}.nc") for name in ("own", "cut"))
        assert [one.cka.tobytes() for one in cut.rounds] == [one.cka.tobytes() for one in own.rounds]
    words = said("runs/fma@1", "runs/fma@2", "--layer", "/./", *small).splitlines()
    assert any(word.endswith("-all.fc1.nc") for word in words)
    assert any(word.endswith("-all.head.nc") for word in words)
    one = said("runs/fma@1", "runs/fma@2", "--layer", "f*", *small).splitlines()
    assert any(word.endswith("-f.nc") for word in one)
