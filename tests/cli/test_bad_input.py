"""What users get wrong: one sentence on stderr, exit 2, nothing lost, no traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from fedscope.checkpoints import Run, write_file
from fedscope.cli.main import run
from fedscope.training import Config, merge, preset, train

pytestmark = pytest.mark.same_elsewhere

SMALL = {
    "data": {"clients": 8},
    "model": {"hidden": [16]},
    "client": {"epochs": 1},
    "run": {"rounds": 4, "participation": 0.5, "evaluate_clients": 40},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of IMA, one that recorded few clients, and one of another architecture."""
    folder = tmp_path_factory.mktemp("whole")
    train(Config.read(merge(preset("ima"), SMALL, {"average": {"start": 2}})), folder / "runs/ima")
    train(Config.read(merge(preset("fma"), SMALL, {"record": {"clients": [2, 4]}})), folder / "runs/few")
    train(
        Config.read(merge(preset("fma"), SMALL, {"model": {"hidden": [12]}, "run": {"rounds": 1}})),
        folder / "runs/wide",
    )
    train(
        Config.read(merge(preset("fma"), SMALL, {"data": {"clients": 2}, "run": {"rounds": 1}})), folder / "runs/pair"
    )
    return folder


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence that a command is refused with."""
    status = run(list(words))
    captured = capsys.readouterr()
    assert status == 2, captured
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


CASES = [
    ("embed runs/fma", "No such command 'embed'; did you mean 'disperse --embed tsne'?"),
    ("decomposs runs/fma", "No such command 'decomposs'; did you mean 'decompose'?"),
    # train
    ("train --method imma", "--method 'imma' is not a method that fedscope knows; did you mean \"ima\"?"),
    (
        "train --method FedAvg,ima --out new",
        "--method 'FedAvg,ima' are 2 methods, and a run has one; train a run of each, as fedscope sweep "
        "method=FedAvg,ima does",
    ),
    ("train --client sgdd", "'sgdd' is not a client method that fedscope knows; did you mean \"sgd\"?"),
    ("train --data digit --out new", "'digit' is not a data set that fedscope knows; did you mean \"digits\"?"),
    ("train --data npz:nothing.npz --out new", "npz:nothing.npz: there is no such file"),
    ("train --set average.windw=3", 'average.windw is not a setting of IMA; did you mean "window"?'),
    ("train --set window=3", "write section.key=value"),
    ("train --rounds ten", "run.rounds = 'ten' has the wrong type: it takes a whole number"),
    ("train --rounds 0", "run.rounds = 0 is out of range: it must be at least 1"),
    ("train --engine Ray --out new", '--engine Ray is unknown; did you mean "ray"?; give auto, threads, device'),
    ("train --partition shards:100 --out new", "needs 5000 shards, but there are only 1437 training samples"),
    ("train --participation 0", "run.participation = 0 is out of range: it must be greater than 0"),
    ("train --lr -1", "client.lr = -1 is out of range"),
    ("train --device cuda:9 --out new", "device = 'cuda:9'"),
    ("train --device gpu --out new", "device = 'gpu' is not a device; use auto, cpu, cuda, mps, xpu"),
    (
        "train --out runs/ima",
        "give --force to replace it, or another --out (`fedscope train --resume runs/ima`",
    ),
    ("train nothing.toml", "nothing.toml cannot be read as a configuration"),
    ("train --resume runs/nothing", "runs/nothing"),
    ("train --resume runs/ima", "is complete: all of its 4 rounds are recorded"),
    ("train --resume runs/ima --lr 3", "goes on with the settings that the run has"),
    ("train --model cnn --set model.chanels=3", 'model.chanels is not a setting of CNN; did you mean "channels"?'),
    ("train --lr .05x --out new", "client.lr = '.05x' has the wrong type: it takes a number"),
    ("train --set average.start=100 --out new", "average.start = 100 comes after the last of 60 rounds"),
    (
        "train --set run.engine=device --device cpu --out new",
        "run.engine = 'device' does not go with",
    ),
    # methods
    ("train --method fedproxx", "'fedproxx' is not a method that fedscope knows; did you mean \"fedprox\"?"),
    (
        "train --server scaffold",
        "'scaffold' is not a server method that fedscope knows; did you mean --client scaffold?",
    ),
    ("train --average wim", "'wim' is not an average over rounds that fedscope knows; did you mean \"wima\"?"),
    ("train --method fedprox --set client.mu=0", "client.mu = 0 would switch the method off; give a number greater"),
    (
        "train --method fedmoswa --set client.lr_flor=1",
        'client.lr_flor is not a setting of FedMoSWA; did you mean "lr_',
    ),
    (
        "train --method fedmoswa --client sgd --set server.gamma=0.3",
        "but the client method is sgd; leave it out, or give",
    ),
    (
        "train --method fedprox --set client.tau=1 --server fedadam",
        "client.tau is not a setting of FedProx; server.tau",
    ),
    ("train --method fedadam --set server.lr=0", "server.lr = 0 is out of range: it must be greater than 0"),
    (
        "train --method fedmoswa --set server.gamma=0.3 --set client.gamma=0.2",
        "client.gamma = 0.2 and server.gamma = 0.3 differ, but FedMoSWA has one gamma",
    ),
    (
        "train --method fednova --client fedswa",
        "--server fednova counts steps of plain or momentum SGD at a constant rate, but --client fedswa changes the "
        "learning rate inside a round; take --client sgd or --server fma",
    ),
    (
        "train --method ima --set average.before_server=true",
        "before_server = true averages before a server's optimiser steps, but the server method fma has none; use",
    ),
    ("train --client fedbabu --average wima --set average.parts=classifier", "averages the head, which the client"),
    ("train --method swa --rounds 20", "so nothing would be averaged; give an earlier --set average.start=11"),
    ("train --client moon --set model.head=fc9 --out new", "model.head = 'fc9' is not a linear layer of the model"),
    # models
    (
        "train --model mlp --set model.hidden=32,16 --out new",
        "model.hidden = '32,16' has the wrong type: it takes a list, each a whole number, written [32,16]",
    ),
    ("cka runs/ima@9", "runs/ima@9: the run has rounds 1-"),
    ("train --model resnet-18 --out new", "'resnet-18' is not a model that fedscope knows; did you mean \"resnet18\"?"),
    ("train --model vgg11-gn --out new", "needs images of at least 32 x 32 pixels, but a sample has shape [1, 8, 8]"),
    ("train --model lstm --out new", "'lstm' needs tokens [n, L], but a sample has shape [1, 8, 8]; use --model mlp"),
    ("train --model resnet20-gn --set model.groups=3 --out new", "model.groups = 3 does not divide the 16 channels"),
    (
        "train --model resnet20-gn --client moon --set model.head=head --out new",
        "not a linear layer of the model; it has",
    ),
    ("train --model resnet18 --partition iid --clients 1437 --out new", "client 0 has batches of one sample, which Ba"),
    (
        "train --model resnet18 --partition iid --batch 1 --out new",
        "client 0 has batches of one sample, which BatchNorm",
    ),
    ("train --model resnet18 --set model.stem=5x5 --out new", "model.stem = '5x5' is not a choice: it takes one of"),
    ("train --set model.weights=none.pt --out new", "none.pt does not exist"),
    # branches
    ("train --from runs/ima --method fma", "runs/ima is a run; name one of its models, as in runs/ima@last"),
    ("train --from runs/ima@9 --method fma", "runs/ima@9: the run has rounds 1-4"),
    ("train --from runs/ima@2/global --method fma", "is not a round of a run; write RUN@ROUND, as in runs/fma@40"),
    ("train --from runs/imma@2 --method fma", 'runs/imma does not exist; did you mean "runs/ima"?'),
    ("train --from runs/ima@4", "run.rounds = 4 leaves nothing to play after round 4; give more, as in --rounds 24"),
    ("train --from runs/ima@2 --clients 9", "data.clients = 9 differs from 8 of runs/ima: a branch keeps its"),
    ("train --from runs/ima@2 --out runs/few", "runs/few exists and holds a run with 4 rounds; give --force"),
    ("train --from runs/ima@2 --out runs/ima --force", "--out runs/ima is the run that is branched from"),
    ("train other.toml --from runs/ima@2", "takes the settings of that run; leave other.toml out"),
    ("train --resume runs/ima --from runs/ima@2", "goes on with the settings that the run has"),
    ("demo --out runs/ima", "runs/ima is a run itself"),
    ("line runs/ima@1 runs/ima@2 --out runs/ima/run.json/x", "runs/ima/run.json"),
    # ls, curves
    ("ls nothing", "nothing is neither a run nor a folder"),
    ("curves nothing", "nothing"),
    ("curves runs/ima --smooth 4", "--smooth 4 does not fit ima, measured in 4 rounds; leave it out, for"),
    (
        "curves runs/ima --measure tset_loss",
        'is not a column of metrics.csv; did you mean "test_loss"? there are train_loss,',
    ),
    (
        "curves runs/ima --measure test_accuracy,train_loss",
        "--measure test_accuracy,train_loss are 2 columns; give --measure test_accuracy --measure train_loss",
    ),
    ("curves runs/ima --measure test_accuracy,train", "is not a column of metrics.csv; "),
    ("curves runs/few --measure averaged_test_loss", "few has no numbers of averaged_test_loss, only of train_loss,"),
    ("curves runs/ima runs/ima", "runs/ima, runs/ima: a run is given twice; give each once"),
    ("curves runs/ima --last 0", "0 is too small; give 1 or more"),
    (
        "curves runs/ima --target 80",
        "--target 80 is not an accuracy greater than 0 and at most 1; for 80 % give --target 0.8",
    ),
    ("curves runs/ima --target 0", "--target 0 is not an accuracy greater than 0 and at most 1\n"),
    (
        "curves runs/ima --measure train_loss --target 0.8",
        "--target 0.8 is an accuracy, and train_loss leaves none; ask for an error or an accuracy too, as --measure te",
    ),
    ("curves runs/ima --bands", "--bands needs runs that differ only in their seed, and ima is one run; train others"),
    ("curves runs/ima@1", "runs/ima@1 names a model, but a whole run is asked for; give runs/ima\n"),  # no --rounds
    ("decompose runs/ima@2/global", "give runs/ima (and --rounds 2)"),
    ("align runs/ima@3 --rounds 1", "runs/ima@3 names its round, and so does --rounds 1; leave one out"),
    ("align runs/ima@3/client-1 --rounds 1", "--rounds 1 is of one run, but got runs/ima@3/client-1; give RUN alone"),
    (
        "sharpness runs/ima --no-hessian --density 64",
        "--density 64 is of the Hessian, which --no-hessian leaves out; leave one out",
    ),
    ("sharpness runs/ima --no-hessian --top 9", "--top 9 is of the Hessian, which --no-hessian leaves out"),
    ("plane runs/ima@1 --random --margin 2", "--margin 2 is room round several models, and --random draws round one"),
    (
        "plane runs/ima@1 runs/ima@2 runs/ima@3 --range -1 1 -1 1 --margin 2",
        "--margin 2 is room round several models, and --range sets the ends; leave --margin out",
    ),
    ("decompose runs/ima@2 --rounds 1", "runs/ima@2 names its rounds, and so does --rounds 1; leave one out"),
    ("train --data folder:nowhere --out runs/ima", "folder:nowhere: there is no folder nowhere/train; it needs"),
    ("train --data runs --out new", "--data runs is a folder; write folder:runs"),
    ("train --method FedAvgg", "'FedAvgg' is not a method that fedscope knows; did you mean"),
    # addresses
    ("line runs/ima@9 runs/ima@1", "runs/ima@9"),
    ("line runs/imma@1 runs/ima@1", "runs/imma"),
    ("line runs/ima@4/client-77 runs/ima@1", "runs/ima@4/client-77: round 4 recorded clients"),
    ("line runs/ima@1/averaged runs/ima@1", "runs/ima@1/averaged: round 1 recorded start, global"),
    ("line runs/ima@x runs/ima@1", "runs/ima@x"),
    ("line runs/ima@1/glbal runs/ima@1", "global"),
    ("line runs/ima@1", "a line needs pairs of models, but got 1"),
    ("line runs/ima@1 runs/ima@2 --range 2 1", "--range 2 1 is upside down"),
    ("line runs/ima@1 runs/ima@2 --clients", "--clients takes one round, RUN@ROUND, but got runs/ima@1 runs/ima@2"),
    ("line runs/few@1 --clients", "the clients of round 1 were not recorded; rounds 2, 4 have them"),
    ("line runs/ima@1/global --clients", "--clients takes one round, RUN@ROUND"),
    ("line runs/ima@1 runs/ima@2 --range 0 inf", "--range has inf, and no line is drawn to there; give from, to as fi"),
    # export
    ("export runs/ima@4 x.h5", "runs/ima@4 is a model, so x.h5 must end in .safetensors, .pt or .pth"),
    ("export plane.nc x.pt", "plane.nc is a surface, so x.pt must end in .csv, .dat or .h5"),
    ("export runs/ima@9 x.pt", "runs/ima@9"),
    ("export runs/ima/metrics.csv x.dat", "runs/ima/metrics.csv is neither a model nor a plane, and a table already"),
    ("export runs/ima@4 runs/few", "runs/few exists; give another name, or --force"),
    (
        "export runs/ima@4 runs/ima/run.json --force",
        "runs/ima/run.json: a model is written as .safetensors, .pt or .pth; give one of these endings",
    ),
    (
        "export runs/ima@4 runs/ima/rounds/a.pt",
        "runs/ima/rounds/a.pt is a place of the run's own files, which nothing else is written over; give another one, "
        "as ima-exported.pt",
    ),
    (
        "export runs/ima --to csv runs/ima/metrics.csv --force",
        "runs/ima/metrics.csv is a place of the run's own files, which nothing else is written over; give another one, "
        "as ima-exported.csv",
    ),
    ("export plane.nc runs/ima/metrics.csv --force", "runs/ima/metrics.csv is a place of the run's own files"),
    ("export plane.nc runs/ima/partition.h5 --force", "runs/ima/partition.h5 is a place of the run's own files"),
    ("export plane.nc runs/ima/rounds/00009.h5", "runs/ima/rounds/00009.h5 is a place of the run's own files"),
    ("export runs/ima@4 nowhere/x.pt", "nowhere is not a folder; make it, or give another name"),
    ("line a.pt b.pt", "a.pt does not exist; give a model's file, or a model of a run, as in runs/ima@last"),
    ("line runs/ima@1 x.pt", "x.pt does not exist; give a model's file, or a model of a run, as in runs/ima@last"),
    # plane
    ("plane runs/ima@1 runs/ima@2", "a plane goes through three models, but got 2"),
    ("plane runs/ima@1 runs/ima@1 runs/ima@2", "same model"),
    ("plane runs/ima@1/global runs/ima@2/global runs/wide@1/global", "fc1.weight"),
    ("plane runs/ima@1 runs/ima@2 runs/ima@3 --grid 1", "1 is too small; give 2 or more"),
    ("plane runs/ima@1 runs/ima@2 runs/ima@3 --width wide", "'wide' is not a width; write 3.5in"),
    ("plane runs/ima@1 runs/ima@2 runs/ima@3 --limit 0", "0 is too small; give 1 or more"),
    ("plane runs/ima@1 runs/ima@2 runs/ima@3 --redraw", "so there is nothing to draw again"),
    ("plane runs/ima --rounds 1,9", "--rounds 1,9: runs/ima has no round 9; it has 1 to 4"),
    ("plane runs/wide --rounds 2", "--rounds 2: runs/wide has no round 2; it has round 1 only"),
    ("plane runs/ima --rounds one", "'one' is not a round"),
    ("plane runs/few --rounds 1", "clients of round 1 were not recorded; rounds 2, 4 have them"),
    ("plane runs/pair --rounds 1", "but a plane needs three clients; train with more clients a round (--clients, --pa"),
    # decompose
    ("decompose runs/ima --draws local:1", "R = 1 gives no variance and no covariance"),
    ("decompose runs/ima --draws local:x", "'x' is not a number of draws"),
    ("decompose runs/ima --draws replays", "'replays' is not a source of draws; use local:R (replays"),
    ("decompose runs/ima --draws local:²", "'²' is not a number of draws; write local:4"),
    ("cka runs/ima --batch 99999999999999999999999", "99999999999999999999999 is too large; give less than 2^63"),
    ("decompose runs/ima --draws rounds:1", "R = 1 gives no variance and no covariance; use rounds:2 or more"),
    ("decompose runs/ima --draws runs:2", "every run that is given is a draw; write --draws runs"),
    ("decompose runs/ima --draws runs", "runs/ima is the only run with its configuration; give two or more"),
    ("decompose runs/ima --draws rounds:2", "the cohorts of rounds 3 and 4 differ (partial participation)"),
    ("decompose runs/few --draws rounds:4 --rounds last", "up to round 4, runs/few recorded the clients of 2 only"),
    ("decompose runs/wide --of averaged", "has no plain average over rounds in round 1; choose later rounds"),
    ("decompose runs/ima --loss zero-one --outputs logits", "--outputs logits is for the squared loss"),
    ("decompose runs/ima --split test --on cohort", "--on cohort chooses among training data"),
    ("decompose runs/ima runs/ima", "2 of the runs are called 'ima'; rename a folder, and give a run only once"),
    ("decompose runs/few --rounds 1,2", "clients of round 1 were not recorded; rounds 2, 4 have them"),
    ("decompos runs/ima", "did you mean 'decompose'?"),
]


@pytest.mark.parametrize(("words", "sentence"), CASES, ids=[words for words, _ in CASES])
def test_a_mistake_is_one_sentence_and_exit_2(
    runs: Path, capsys: pytest.CaptureFixture[str], words: str, sentence: str
) -> None:
    before = found_in(runs)
    assert sentence in refused(capsys, *words.split())
    assert found_in(runs) == before


def found_in(folder: Path) -> dict[Path, int | None]:
    """All files, and when each was written, and all folders."""
    return {path: path.stat().st_mtime_ns if path.is_file() else None for path in folder.rglob("*")}


def test_collinear_models_are_refused_with_their_angle(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_ = Run.open("runs/ima")
    start, end = (run_.round(1).read(which) for which in ("start", "global"))
    for i, share in enumerate((0.0, 0.5, 1.0)):
        w = start.parameters + np.float32(share) * (end.parameters - start.parameters)
        write_file(f"{i}.safetensors", type(start)(start.layout, w, {}))
    message = refused(
        capsys, "plane", "0.safetensors", "1.safetensors", "2.safetensors", "--data", "digits", "--model", "mlp"
    )
    assert "fc2.weight, fc2.bias missing" in message  # the default mlp has another layer than this run's
    # with the run's own architecture named by one of its addresses the anchors are seen to lie on one line
    assert "lie on one line (angle" in refused(
        capsys, "plane", "runs/ima@1/start", "runs/ima@1/global", "1.safetensors"
    )


def test_a_run_without_rounds_is_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("runs/ima/rounds")
    for words in (["curves", "runs/ima"], ["decompose", "runs/ima"], ["line", "runs/ima@last", "runs/ima@1"]):
        assert "runs/ima" in (message := refused(capsys, *words))
        assert "no rounds" in message


def test_a_configuration_is_named_and_a_value_without_end_is_cut(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.toml").write_text(f'[client]\nepochs = "{"x" * 10**6}"\n')
    message = refused(capsys, "train", "c.toml", "--out", "new")
    assert message.startswith(
        f"fedscope: c.toml: client.epochs = '{'x' * 59}... (1,000,002 letters) has the wrong type"
    )
    assert len(message) < 300
    Path("c.toml").write_text("[client]\nepochs = 1\n")
    assert "c.toml" not in refused(capsys, "train", "c.toml", "--epochs", "x", "--out", "new")
    Path("c.toml").write_text(f"x = {'[' * 10**5}")
    assert "c.toml is damaged: its TOML is nested too deep" in refused(capsys, "train", "c.toml", "--out", "new")


def test_a_damaged_result_is_one_sentence(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["line", "runs/ima@1/global", "runs/ima@2/global", "--points", "3", "--limit", "40", "--out", "l"]
    assert run(words) == 0
    whole = Path("l.nc").read_bytes()
    for spoil, sentence in (
        (lambda file: file.attrs.pop("ends"), "l.nc is damaged ('ends'); compute the line again with --force"),
        (lambda file: file.move("loss", "aside"), "l.nc lacks loss; compute the line again with --force"),
        (
            lambda file: swap(file, "loss", "barrier"),
            "l.nc is damaged: loss is float64 along pair, not numbers along p",
        ),
    ):
        Path("l.nc").write_bytes(whole)
        with h5py.File("l.nc", "r+") as file:
            spoil(file)
        assert sentence in refused_after(capsys, *words, "--redraw")


def swap(file: h5py.File, one: str, other: str) -> None:
    file.move(one, "aside")
    file.move(other, one)
    file.move("aside", other)


def test_another_result_is_not_overwritten_and_the_same_one_is_drawn_again(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["line", "runs/ima@1", "runs/ima@2", "--points", "5", "--out", "figures/line"]
    assert run(words) == 0
    first = Path("figures/line.nc").read_bytes()
    assert "another result, of --points 5 (not 7); give another --out" in refused_after(
        capsys, *words[:4], "7", *words[5:]
    )
    assert Path("figures/line.nc").read_bytes() == first
    pdf = Path("figures/line.pdf").read_bytes()
    Path("figures/line.pdf").unlink()
    assert run(words) == 0
    assert "already holds this result" in capsys.readouterr().err
    assert Path("figures/line.pdf").read_bytes() == pdf
    Path("figures/line.pdf").unlink()
    assert run([*words, "--redraw", "--width", "7in"]) == 0
    assert Path("figures/line.pdf").read_bytes() != pdf
    assert run([*words[:4], "7", *words[5:], "--force"]) == 0
    assert Path("figures/line.nc").read_bytes() != first


def refused_after(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    return refused(capsys, *words)


def test_force_never_replaces_a_folder_that_is_no_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("years of work")
    assert "thesis" in refused(capsys, "train", "--out", "thesis", "--force")
    assert Path("thesis/chapter.tex").read_text() == "years of work"


def test_debug_shows_the_traceback(runs: Path) -> None:
    from fedscope.checkpoints import FedscopeError

    with pytest.raises(FedscopeError):
        run(["ls", "nothing"], debug=True)


def test_a_damaged_run_does_not_hide_the_others(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "runs/few/config.toml").write_text("rounds = 4\n")
    assert run(["ls", "runs"]) == 0
    listing = capsys.readouterr().out
    assert "damaged: " in listing
    assert "runs/ima" in listing


def test_a_result_is_not_taken_for_that_of_other_models(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("runs/ima", "part")
    for t in (3, 4):
        Path(f"part/rounds/0000{t}.h5").rename(f"{t}.h5")
    words = ["line", "part@1/global", "part@last/global", "--points", "3", "--out", "line"]
    assert run(words) == 0
    for t in (3, 4):
        Path(f"{t}.h5").rename(f"part/rounds/0000{t}.h5")
    assert "another result, of weights that have changed since; give" in refused_after(capsys, *words)


def test_results_of_two_kinds_under_one_name_keep_their_numbers(runs: Path) -> None:
    assert run(["curves", "runs/ima", "--out", "same"]) == 0
    assert run(["decompose", "runs/ima", "--rounds", "1", "--out", "same"]) == 2  # there is one same.pdf
    assert run(["decompose", "runs/ima", "--rounds", "1", "--out", "same", "--force"]) == 0
    assert run(["curves", "runs/ima", "--out", "same", "--redraw"]) == 0
    assert run(["decompose", "runs/ima", "--rounds", "1", "--out", "same", "--redraw"]) == 0


def test_a_result_torn_between_its_files_is_made_again(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What lies there without its main file could be anybody's, unless the store of an interrupted one lies beside."""
    for words, last in (
        (["curves", "runs/ima", "--out", "a"], "a.curves.json"),
        (["decompose", "runs/ima", "--rounds", "1", "--out", "b"], "b.factors.json"),
    ):
        assert run(words) == 0
        Path(last).unlink()
        capsys.readouterr()
        assert run(words) == 2
        assert f"is in the way, and without {last}" in capsys.readouterr().err
        Path(f"{last}.partial").touch()
        assert run(words) == 0
        assert Path(last).exists()
        Path(last).unlink()
        assert run([*words, "--force"]) == 0


def test_a_replaced_run_of_another_program_is_another_run(runs: Path) -> None:
    """It does not say when it was made, so its files do; of one that does, only this counts."""
    import json

    from fedscope.analysis.run_identity import identity
    from fedscope.cli.run_analysis import _same

    said = identity(Run.open("runs/ima"))
    assert set(said) == {"path", "created", "versions"}
    assert _same("run", [said], [{**said, "path": str(Path("runs/ima").resolve())}])
    assert not _same("run", [said], [{**said, "created": "another day"}])
    info = json.loads(Path("runs/ima/run.json").read_text())
    foreign = {key: value for key, value in info.items() if key not in ("created", "versions")}
    Path("runs/ima/run.json").write_text(json.dumps({**foreign, "files": {}, "source": "another program"}))
    before = identity(Run.open("runs/ima"))
    assert identity(Run.open("runs/ima")) == before
    file = Path("runs/ima/rounds/00002.h5")
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert not _same("run", before, identity(Run.open("runs/ima")))


def test_a_run_of_another_program_needs_its_model_and_data_named(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    info = json.loads(Path("runs/ima/run.json").read_text())
    del info["data"]
    Path("runs/ima/run.json").write_text(json.dumps({**info, "files": {}, "source": "another program"}))
    for name in ("config.toml", "partition.h5", "metrics.csv"):
        Path("runs/ima", name).unlink()
    words = ["line", "runs/ima@1/global", "runs/ima@2/global", "--points", "3", "--out", "line"]
    assert "recorded by another program" in refused(capsys, *words)
    assert (
        "was recorded by another program and names neither architecture nor data; give --model and --data"
        in refused(capsys, "decompose", "runs/ima", "--rounds", "1")
    )
    assert run(["ls", "runs"]) == 0
    assert run(["curves", "runs/ima"]) == 0  # its rounds say what was measured
    capsys.readouterr()
    for file in Path("runs/ima/rounds").iterdir():
        with h5py.File(file, "r+") as round_:
            del round_["checksums"], round_.attrs["checksums"]  # as by a program that writes none
            round_.attrs["metrics"] = "{}"
    Path("runs/ima/figures").rename("figures")
    assert (
        "ima has no numbers of test_loss or test_error: nothing was measured while it was recorded; measure its "
        "models now: fedscope measure RUN, with --model and --data if the run names none"
        in refused(capsys, "curves", "runs/ima")
    )
    assert not Path("runs/ima/figures").exists()


def test_diverged_runs_are_drawn_too_and_said_to_be(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--clients", "8", "--participation", "0.5", "--rounds", "2", "--lr", "1e30", "--keep-going"]
    assert run(["train", "--method", "fma", "--out", "wild", *words]) == 0
    lost = "diverged: no finite loss from round 1 on; its answers count as wrong"
    assert f"wild: 2 rounds; test error of the global model 100.0 %; it {lost}\n" in capsys.readouterr().out
    assert run(["curves", "wild"]) == 0
    assert f"\nwild {lost}\n" in capsys.readouterr().out


def test_a_run_that_lost_its_partition_is_not_resumed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs/ima/rounds/00004.h5").unlink()
    Path("runs/ima/partition.h5").unlink()
    assert "partition.h5" in refused(capsys, "train", "--resume", "runs/ima")


FILES_OF_OTHERS = [
    ("import nothing.h5", "nothing.h5 does not exist; it should be a surface of loss-landscape"),
    ("import nothing.npz", "nothing.npz does not exist; give the plane.npz of dnn-mode-connectivity"),
    ("import line.h5", "line.h5 holds a curve along one direction (xcoordinates only), and a surface needs two"),
    ("import holes.h5 --split test", "holes.h5 has no test losses, only those of train; give --split train"),
    ("import runs/ima/rounds/00001.h5", "00001.h5 is not a surface of loss-landscape: it has no xcoordinates"),
    (
        "import flower.npz",
        "flower.npz is not a plane of dnn-mode-connectivity: it has no grid; a model's .npz needs no",
    ),
    ("import model.pt", "model.pt is a model, which needs no import: give it to `fedscope plane` or `fedscope line`"),
    ("import result.nc", "result.nc is a result already; the command that made it draws it again with --redraw"),
    ("import table.csv", "table.csv is not a file that can be imported: the .h5 of loss-landscape, the plane.npz"),
    ("import holes.h5 --redraw --out none", "none.nc does not exist, so there is nothing to draw again"),
    ("line model.pt model.pt --data digits --model nowhere:net", "--model nowhere:net: there is no module nowhere in"),
    (
        "line model.pt model.pt --data digits --model torch.nn:Identity",
        "model.pt: these tensors are not the expected model's",
    ),
    ("train --set model.weights=model.pt --out new", "does not fit mlp as it is set here: fc1.weight, fc1.bias, fc2.w"),
    ("train --model own.nets:small --out new", "--model own.nets:small: there is no module own"),
]


@pytest.mark.parametrize(("words", "sentence"), FILES_OF_OTHERS, ids=[words for words, _ in FILES_OF_OTHERS])
def test_files_and_code_of_others_are_refused_in_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], words: str, sentence: str
) -> None:
    for name, more in (("line.h5", {}), ("holes.h5", {"ycoordinates": [0.0, 1.0], "train_loss": -np.ones((3, 2))})):
        with h5py.File(name, "w") as file:
            for key, values in {"xcoordinates": [0.0, 1.0, 2.0], **more}.items():
                file[key] = values
    np.savez("flower.npz", np.ones(3), np.ones(2))
    torch.save({"weight": torch.ones(3)}, "model.pt")
    message = refused(capsys, *words.split())
    assert sentence in message
    assert message.count("\n") == 1
    assert not Path("new").exists()


def test_a_surface_without_one_finite_value_is_drawn_or_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("s.h5", "w") as file:
        file["xcoordinates"], file["ycoordinates"] = [0.0, 1.0, 2.0], [0.0, 1.0]
        file["train_loss"] = file["train_acc"] = np.array([[-1, -1], [-1, -1], [np.nan, -1]])
    assert run(["import", "s.h5", "--out", "s"]) == 0  # one point was computed, and diverged
    assert "5 points were not computed and are holes" in capsys.readouterr().out
    assert "5 of 6 points not computed" in Path("s.html").read_text(encoding="utf-8")
    with h5py.File("none.h5", "w") as file:
        file["xcoordinates"], file["ycoordinates"] = [0.0, 1.0, 2.0], [0.0, 1.0]
        file["train_loss"] = file["train_acc"] = -np.ones((3, 2))
    assert "none.h5 has coordinates but no losses (all are -1): nothing was" in refused(capsys, "import", "none.h5")


def test_a_model_with_other_classes_than_the_data_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("seven_classes_net.py").write_text(
        "from torch import nn\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))\n"
    )
    for i in (0, 1):
        torch.save({"1.weight": torch.full((7, 64), float(i)), "1.bias": torch.zeros(7)}, f"{i}.pt")
    message = refused(capsys, "line", "0.pt", "1.pt", "--data", "digits", "--model", "seven_classes_net:net")
    assert "the module returns outputs of shape [1, 7] for one sample" in message
    assert "has 10 classes, so [1, 10] is needed" in message


def test_a_warning_is_printed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    # data are read in several places, and each says what is odd about them
    monkeypatch.chdir(tmp_path)
    draw, y = np.random.default_rng(0), np.arange(60) % 10
    x = draw.random((60, 4)).astype(np.float32)
    np.savez("d.npz", x_train=255 * x, y_train=y, x_test=x, y_test=y)
    for k in range(2):
        torch.save({"0.weight": torch.randn(10, 4), "0.bias": torch.zeros(10)}, f"m{k}.pt")
    Path("warned_nets.py").write_text(
        "from torch import nn\n\ndef net():\n    return nn.Sequential(nn.Linear(4, 10))\n"
    )
    imported = ["import", "m0.pt", "m1.pt", "--data", "d.npz", "--model", "warned_nets.py:net", "--out", "run"]
    assert run([*imported, "--standardise"]) == 0
    capsys.readouterr()
    assert run(["subsets", "run", "--model", "warned_nets.py:net"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedscope: ")]
    assert [line for line in said if "x_test varies 0.00" in line]
    assert len(said) == len(set(said))
