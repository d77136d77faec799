"""``fedscope theory`` as a user gives it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.decomposition.draws.replay import Replayer
from fedscope.decomposition.theory.analysis import theory
from fedscope.decomposition.theory.outputs import locality_gaps, replay_variances
from fedscope.decomposition.theory.result import Theory
from fedscope.decomposition.theory.tangent import tangent_kernel
from fedscope.decomposition.theory.theorem2 import client_bounds
from fedscope.training import data_of, module_of
from fedscope.training.data.membership import kernel_rows

# The architecture of the runs below, as a user's own.
MADE = "from fedscope.training.models.architectures.mlp import MLP\n"
MADE += "def make():\n    return MLP(hidden=(16,)).build((1, 8, 8), 10)\n"
QUICK = ["--limit", "60", "--kernel-samples", "80", "--dimension", "64"]


COMMAND = "theory"
pytestmark = pytest.mark.usefixtures("few_digits")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["--method", "fma", "--clients", "8", "--participation", "0.5", "--set", "model.hidden=[16]"]
    recorded(folder / "runs" / "fma", *words, "--rounds", "4")
    recorded(folder / "runs" / "some", *words, "--rounds", "2", "--set", "record.clients=[1]")
    return folder


def foreign(folder: Path) -> None:
    """A run as another program records it: no configuration, no partition."""
    for name in ("config.toml", "partition.h5", "metrics.csv"):
        (folder / name).unlink()
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "files": {}, "source": "another program"}))


def test_a_run_gives_a_table_and_a_figure(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/fma", *QUICK, "--out", "t")
    lines = words.splitlines()
    made = Theory.load("t")
    slope, found = made.slope, made.correlation(4, "replay_variance")
    assert slope is not None
    assert found is not None
    assert f"gap against Δ² over 4 rounds, slope {slope.value:.2f} ± {slope.stderr:.2f} (one standard error" in lines[0]
    assert "clients of round 4 shrunk 64-fold" in lines[0]
    assert lines[1].startswith("fma@4, Theorem 2, 4 clients, n_k 10, Gaussian-process variance with equation 3 (the ")
    assert lines[2].startswith("fma@4, Theorem 2, replay variance with equation 3 (the theorem) r = ")
    assert f"with the first term alone (neither) r = {found.pearson:.2f} [" in lines[2]
    assert lines[3:] == ["  t.theory.csv", "  t.theory.json", "  t.pdf", "  t.png"]
    assert [one.round for one in made.rounds] == [1, 2, 3, 4]
    assert [one.shrink for one in made.shrunk[4]] == [2.0**-i for i in range(7)]
    assert (made.attrs["samples"], made.attrs["kernel_samples"], made.attrs["draws"]) == (60, 80, "local:4")
    recorded = Run.open("runs/fma")
    assert [one.client for one in made.bounds] == recorded.round(4).client_ids.tolist()
    assert sum(one.samples for one in made.bounds) == pytest.approx(40, abs=4)  # half of the clients
    assert all(one.gp_variance <= one.bound for one in made.bounds)
    with Path("t.theory.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["client"] for row in rows if row["quantity"] == "gap"} == {""}
    # another is not overwritten
    with pytest.raises(FedscopeError, match=r"t\.theory\.json holds another result, of --dimension \d+ \(not \d+\);"):
        said("runs/fma", *QUICK[:-1], "65", "--out", "t")


def test_the_gaps_are_of_the_asked_rounds_models_and_samples(runs: Path, said: Callable[..., str]) -> None:
    words = ["runs/fma", "--rounds", "2,4", "--shrink", "none", "--kernel", "none", "--split", "test", "--json"]
    out = json.loads(said(*words))
    recorded = Run.open("runs/fma")
    round_ = recorded.round(2)
    (gap,) = locality_gaps(
        module_of(recorded), data_of(recorded).samples("test"), round_.clients(), round_.weights, round=2
    )
    assert [one["round"] for one in out["gaps"]] == [2, 4]
    assert out["gaps"][0] == {**vars(gap), "ratio": gap.ratio}
    assert (out["slope"], out["clients"], out["correlations"]) == (None, [], [])
    assert Path(out["files"][0]).parent == Path("runs/fma/figures")


def test_the_clients_are_those_of_the_theorem(runs: Path, said: Callable[..., str]) -> None:
    words = ["--rounds", "3", "--shrink", "none", "--draws", "local:3", "--seed", "5", "--outputs", "logits"]
    said("runs/fma", *QUICK, *words, "--out", "t")
    recorded = Run.open("runs/fma")
    round_, module, whole = recorded.round(3), module_of(recorded), data_of(recorded).samples("train")
    rows, members = kernel_rows(recorded.partition, round_.client_ids, 80, 5, 3)
    data = replace(whole, x=whole.x[rows], y=whole.y[rows], indices=rows)
    kernel = tangent_kernel(module, data.x, round_.read("start"), dimension=64, seed=5)
    spread = replay_variances(module, data, Replayer.of(recorded).local_draws(3, 3), outputs="logits")
    expected = client_bounds(kernel, members, round_.client_ids, round=3)
    for found, bound, variance in zip(Theory.load("t").bounds, expected, spread, strict=True):
        assert found == replace(bound, replay_variance=float(variance))


def test_a_head_that_the_method_freezes_is_not_in_the_kernel(
    tmp_path: Path, said: Callable[..., str], recorded: Callable[..., Path]
) -> None:
    """FedBABU's clients do not move it; those of the rounds before a branch to FedBABU did, as FedAvg's do."""
    small = ["--clients", "5", "--participation", "1", "--set", "model.hidden=[16]"]
    first = recorded(tmp_path / "first", "--method", "fma", *small, "--rounds", "1")
    run = Run.open(recorded(tmp_path / "babu", "--from", f"{first}@1", "--client", "fedbabu", "--rounds", "2"))
    words = [*QUICK, "--rounds", "1,2", "--kernel", "1,2", "--shrink", "none", "--draws", "none"]
    said(str(run.path), *words, "--out", f"{tmp_path}/t")
    module, whole, out = module_of(run), data_of(run).samples("train"), Theory.load(f"{tmp_path}/t")
    head = [name for name, _ in module.named_parameters() if name.startswith("head.")]
    assert out.attrs["frozen_head"] == sorted(head) != []
    for number in (1, 2):
        round_ = run.round(number)
        for name in head:
            where = round_.layout.slices[name]
            moved = round_.clients().parameters[:, where] - round_.read("start").parameters[where]
            assert moved.any() == (number == 1)
        module.head.requires_grad_(number == 1)
        rows, members = kernel_rows(run.partition, round_.client_ids, 80, 0, number)
        kernel = tangent_kernel(module, whole.x[rows], round_.read("start"), dimension=64)
        assert list(out.by_round[number]) == list(client_bounds(kernel, members, round_.client_ids, round=number))
    stored = Path(f"{tmp_path}/t.theory.json")  # as an earlier version, which counted it, has left it
    stored.write_text(json.dumps(json.loads(stored.read_text()), indent=1).replace('"frozen_head"', '"another"'))
    with pytest.raises(FedscopeError, match=r"another result, of a kernel with the head that clients did not move"):
        said(str(run.path), *words, "--out", f"{tmp_path}/t")
    said(f"{run.path}@1", *QUICK, "--shrink", "none", "--draws", "none", "--out", f"{tmp_path}/one")
    assert "frozen_head" not in Theory.load(f"{tmp_path}/one").attrs


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--kernel-samples", "50"], {"kernel_samples": 50}),
        (["--dimension", "64"], {"dimension": 64}),
        (["--draws", "3"], {"draws": 3}),
        (["--draws", "local:3"], {"draws": "local:3"}),
    ],
)
def test_settings_of_the_kernel_are_refused_without_one(
    runs: Path, said: Callable[..., str], words: list[str], given: dict[str, int | str]
) -> None:
    message = r"is of Theorem 2, which (--kernel none|kernel='none') leaves out; leave one out$"
    with pytest.raises(FedscopeError, match=rf"^{' '.join(words)} {message}"):
        said("runs/fma", "--kernel", "none", *words)
    with pytest.raises(FedscopeError, match=message):
        theory("runs/fma", kernel="none", **given)  # type: ignore[arg-type]


def test_defaults_that_nobody_typed_are_no_settings_of_a_kernel(runs: Path, said: Callable[..., str]) -> None:
    lemma = ["runs/fma", "--rounds", "2", "--kernel", "none", "--shrink", "none", "--limit", "60", "--seed", "1"]
    said(*lemma, "--out", "a")
    said(*lemma, "--draws", "none", "--out", "b")
    theory("runs/fma", rounds=2, kernel="none", shrink="none", limit=60, kernel_samples=1000, dimension=1024)
    with pytest.raises(FedscopeError, match=r"--dimension 1024 is of Theorem 2"):  # typed, though the default
        said(*lemma, "--dimension", "1024", "--out", "c")


def test_without_replays_and_with_several_rounds(runs: Path, said: Callable[..., str]) -> None:
    words = ["runs/fma", *QUICK, "--draws", "none", "--rounds", "1,2", "--kernel", "1,4", "--shrink", "1,2"]
    out = json.loads(said(*words, "--json", "--out", "t"))
    assert [(one["round"], one["variance"], one["prediction"]) for one in out["correlations"]] == [
        (number, "gp_variance", name) for number in (1, 4) for name in ("equation_3", "mmd2", "predicted")
    ]
    assert {one["replay_variance"] for one in out["clients"]} == {None}
    assert sorted(Theory.load("t").shrunk) == [1, 2]


def test_only_rounds_with_clients_count(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/some", *QUICK, "--draws", "none", "--out", "t")
    assert "gaps of 1 rounds, and a slope over rounds needs three" in words
    assert [one.round for one in Theory.load("t").rounds] == [1]


def test_kernels_outlive_an_interruption_of_their_replays(
    runs: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope.decomposition.theory import outputs, tangent

    real, asked = tangent.tangent_kernel, []

    def counted(*given: object, **named: object) -> object:
        asked.append(1)
        return real(*given, **named)  # type: ignore[arg-type]

    def interrupt(*given: object, **named: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(tangent, "tangent_kernel", counted)
    words = ["runs/fma", *QUICK, "--rounds", "3,4", "--kernel", "3,4", "--draws", "local:2", "--shrink", "none"]
    with monkeypatch.context() as patched:
        patched.setattr(outputs, "replay_variances", interrupt)
        with pytest.raises(click.Abort):
            said(*words, "--out", "t")
    said(*words, "--out", "t")
    assert asked == [1, 1]
    said(*words, "--out", "whole")
    assert Path("t.theory.csv").read_bytes() == Path("whole.theory.csv").read_bytes()


def test_the_function_says_the_same(runs: Path, capsys: pytest.CaptureFixture[str], said: Callable[..., str]) -> None:
    words = ["runs/fma@3", *QUICK, "--shrink", "none", "--kernel", "2,last", "--draws", "local:2", "--json"]
    out = json.loads(said(*words, "--out", "t"))
    small = {"limit": 60, "kernel_samples": 80, "dimension": 64}
    made = theory(Run.open("runs/fma"), rounds=3, shrink="none", kernel=[2, "last"], draws=2, **small)
    assert capsys.readouterr().err == "", "what replays cost is said by the command"
    assert made.numbers() == {key: value for key, value in out.items() if key != "files"}
    assert {one["round"] for one in out["gaps"]} == {3}
    assert {one["round"] for one in out["clients"]} == {2, 4}
    assert made.attrs == Theory.load("t").attrs
    with pytest.raises(FedscopeError, match=r"outputs='logit' is none of probabilities, logits; did you mean"):
        theory("runs/fma", outputs="logit")  # type: ignore[arg-type]


@pytest.mark.parametrize("methods", [("--client", "fedswa"), ("--server", "fedswa"), ("--method", "fedmoswa")])
def test_a_run_of_fedswa_says_its_factor(
    tmp_path: Path, said: Callable[..., str], recorded: Callable[..., Path], methods: tuple[str, str]
) -> None:
    small = [
        "--clients",
        "5",
        "--partition",
        "dirichlet:0.3",
        "--batch",
        "7",
        "--epochs",
        "2",
        "--rounds",
        "3",
        "--participation",
        "1",
    ]
    recorded(tmp_path / "fedswa", *methods, *small, "--set", "model.hidden=[16]")
    line = said(
        f"{tmp_path}/fedswa@1,2", "--kernel", "none", "--shrink", "none", "--out", f"{tmp_path}/t"
    ).splitlines()[1]
    sizes = [len(own) for own in Run.open(tmp_path / "fedswa").partition.clients]
    few, many = (2 * -(-size // 7) for size in (min(sizes), max(sizes)))
    assert few < many
    factors = [f"{1 + (2 + 1 / (steps * 2)) ** (steps - 1) / 2:.3g}" for steps in (few, many)]
    assert f"is {factors[0]} to {factors[1]} for K = {few} to {many} and T = 2 (known from notes" in line


def test_a_run_of_another_program(runs: Path, said: Callable[..., str]) -> None:
    own = json.loads(said("runs/fma", "--split", "test", "--kernel", "none", "--json", "--out", "own"))
    foreign(Path("runs/fma"))
    words = ["runs/fma", "--data", "digits", "--model", "small:make", "--out", "t"]
    Path("small.py").write_text(MADE)
    with pytest.raises(FedscopeError, match=r"no partition\.h5\), and Theorem 2 needs it; give --split test --kernel"):
        said(*words, "--split", "test")
    with pytest.raises(
        FedscopeError, match=r"no partition\.h5\), and --split train is all clients' data; give --split"
    ):
        said(*words, "--kernel", "none")
    out = json.loads(said(*words, "--kernel", "none", "--split", "test", "--json"))
    assert out["gaps"] == own["gaps"]


def test_a_partition_without_a_configuration_needs_no_replays(runs: Path, said: Callable[..., str]) -> None:
    kept = Path("runs/fma/partition.h5").read_bytes()
    foreign(Path("runs/fma"))
    Path("runs/fma/partition.h5").write_bytes(kept)
    with pytest.raises(
        FedscopeError, match=r"recorded by another program, whose training cannot be replayed; give --dr"
    ):
        said("runs/fma", "--data", "digits", "--model", "mlp", "--draws", "local:4")


def other_data(n: int) -> None:
    """small.npz: images of the digits' shape and labels that are none."""
    draw = np.random.default_rng(0)
    x, y = draw.random((n, 1, 8, 8), dtype=np.float32), np.arange(n) % 10
    np.savez("small.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])


@pytest.mark.parametrize("n", [50, 1437])  # indices that are not there, and indices of others' samples
def test_a_partition_is_not_applied_to_other_data(runs: Path, said: Callable[..., str], n: int) -> None:
    other_data(n)
    lemma = ["runs/fma", "--limit", "60", "--data", "npz:small.npz", "--draws", "none", "--out", "t"]
    words = [*lemma, *QUICK]
    for asked in (words, [*lemma, "--kernel", "none"], [*words, "--split", "test"]):
        with pytest.raises(
            FedscopeError, match=r"--data npz:small\.npz is not the data that runs/fma was trained on.*leave out --data"
        ):
            said(*asked)
    assert not Path("t.theory.json").exists()
    assert "Lemma 1" in said(*lemma, "--split", "test", "--kernel", "none")
    # the run's own data by name are no other data
    assert "Theorem 2" in said(*words, "--data", "digits", "--out", "own")


def test_a_partition_of_another_program_must_fit_the_data(runs: Path, said: Callable[..., str]) -> None:
    kept = Path("runs/fma/partition.h5").read_bytes()
    foreign(Path("runs/fma"))
    Path("runs/fma/partition.h5").write_bytes(kept)
    info = json.loads(Path("runs/fma/run.json").read_text())
    without = {key: value for key, value in info.items() if key not in ("data", "files")}
    Path("runs/fma/run.json").write_text(json.dumps(without))
    Path("small.py").write_text(MADE)
    other_data(50)
    words = ["runs/fma", *QUICK, "--model", "small:make", "--draws", "none", "--out", "t"]
    with pytest.raises(
        FedscopeError, match=r"client \d of runs/fma holds sample [\d,]+, but the train split of npz:sm"
    ):
        said(*words, "--data", "npz:small.npz")
    assert "Theorem 2" in said(*words, "--data", "digits")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/some", "--rounds", "2"], r"runs/some@2: the clients of round 2 were not recorded; round 1 has them"),
        (["runs/some", "--kernel", "2"], r"--kernel 2: runs/some has no round 2"),
        (["runs/fma", "--shrink", "1", "--rounds", "3,4"], r"--shrink 1: round 1 is not asked for by --rounds"),
        (["runs/fma", "--precision", "bf16"], r"--precision bf16 cannot see a gap .* in float64; leave it out"),
        (["runs/fma", "--draws", "runs"], r"--draws runs: the variance here is one over replays; use local:R"),
        (["runs/fma", "--draws", "4"], r"--draws 4: the variance here is one over replays; use local:R"),
        (["runs/fma", "--draws", "local:1"], r"--draws local:1: R = 1 gives no variance"),
        (["runs/fma", "--kernel-samples", "3"], r"client \d of round 4 holds .* give --kernel-samples \d+ or"),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, said: Callable[..., str], words: list[str], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        said(*words)
