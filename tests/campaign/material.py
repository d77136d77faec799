"""What is spoilt: two tiny federations, an interrupted one, models, data, surfaces and results, and who reads them."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedscope.checkpoints import Run, load_model
from fedscope.cli.main import run
from fedscope.training import Config, merge, preset, train
from fedscope.training.loop.federation import Unwatched

TINY: dict[str, dict[str, Any]] = {
    "data": {"clients": 6},
    "model": {"hidden": [8]},
    "client": {"epochs": 1, "batch": 60},
    "run": {"rounds": 4, "participation": 0.5, "evaluate_clients": 40},
}

#: commands that read a run's rounds; each writes ``out``, if anything
ON_RUNS = (
    "ls RUN",
    "ls runs",
    "curves RUN",
    "line RUN@2/global RUN@3/global --points 3 --limit 60",
    "line RUN@3 --clients --points 3 --limit 60",
    "line RUN@2/global RUN@3/global --layers cumulative --points 3 --limit 60",
    "layers RUN",
    "plane RUN@1/global RUN@2/global RUN@3/client-ID --grid 3 --limit 60",
    "plane RUN@3 --clients --grid 3 --data-of clients",
    "plane RUN --trajectory --grid 3 --limit 60 --adaptive",
    "sharpness RUN@3/global --no-hessian --draws 2 --limit 60",
    "decompose RUN --rounds 3 --draws local:2 --limit 60",
    "cka RUN --rounds 2,3 --limit 60",
    "subsets RUN --rounds 3 --limit 60",
    "consensus RUN --rounds 3 --limit 60",
    "forgetting RUN --limit 60",
    "matrix RUN --limit 60",
    "predictors RUN --limit 60",
    "theory RUN --rounds 3 --kernel none --draws none --limit 60",
    "disperse RUN",
    "updates RUN",
    "synergy RUN@3",
    "reaggregate RUN@3 --server fedadam --limit 60",
    "parameters RUN --top 2",
    "explain RUN --rounds 2,3 --draws local:2 --limit 60",
    "export RUN@3 out.safetensors",
    "export RUN --to csv out.csv",
    "train --from RUN@3 --rounds 5 --out out",
)
#: that read more of a run than its rounds: data, partition, configuration
ON_ALL = (
    "ls RUN",
    "curves RUN",
    "plane RUN@3 --clients --grid 3 --data-of clients",
    "decompose RUN --rounds 3 --draws local:2 --limit 60",
    "forgetting RUN --limit 60",
    "matrix RUN --limit 60",
    "theory RUN --rounds 3 --kernel none --draws none --limit 60",
    "reaggregate RUN@3 --server fedadam --limit 60",
    "train --from RUN@3 --rounds 5 --out out",
)
RESUMES = ("train --resume runs/half", "train --from runs/half@2 --rounds 3 --out out", "ls runs/half")


@dataclass(frozen=True)
class Target:
    """Something to spoil.

    Attributes:
        group: its row of the table.
        path: the file, or a pattern of files.
        commands: that read it.
        recorded: whether the run holds what tells an altered file from a sound one; elsewhere a changed number is a
            number like any other.
    """

    group: str
    path: str
    commands: tuple[str, ...]
    recorded: bool


def _on(name: str, commands: tuple[str, ...]) -> tuple[str, ...]:
    client = {"runs/ima": "IMA", "runs/scaffold": "SCAFFOLD", "runs/half": "HALF"}[name]
    return tuple(words.replace("RUN", name).replace("client-ID", f"client-{client}") for words in commands)


RUNS = ("runs/ima", "runs/scaffold")
BESIDE = ("partition.h5", "config.toml", "run.json", "metrics.csv")
RESULTS = {
    "curves": "curves runs/ima",
    "line": "line runs/ima@2/global runs/ima@3/global --points 3 --limit 60",
    "align": "align runs/ima@2/global runs/ima@3/global --limit 60",
    "plane": "plane runs/ima@1/global runs/ima@2/global runs/ima@3/global --grid 3 --limit 60",
    "decompose": "decompose runs/ima --rounds 3 --draws local:2 --limit 60",
    "cka": "cka runs/ima --rounds 2,3 --limit 60",
    "subsets": "subsets runs/ima --rounds 3 --limit 60",
    "consensus": "consensus runs/ima --rounds 3 --limit 60",
    "forgetting": "forgetting runs/ima --limit 60",
    "matrix": "matrix runs/ima --limit 60",
    "predictors": "predictors runs/ima --limit 60",
    "theory": "theory runs/ima --rounds 3 --kernel none --draws none --limit 60",
    "disperse": "disperse runs/ima",
    "updates": "updates runs/ima",
    "sharpness": "sharpness runs/ima@3/global --no-hessian --draws 2 --limit 60",
    "synergy": "synergy runs/ima@3",
    "parameters": "parameters runs/ima --top 2",
}

ROUNDS, PARTS, KEPT = "rounds", "partition, config, run.json, metrics", "kept state"
FILES, OUT = "models, data, surfaces", "results"
TARGETS = (
    *(Target(ROUNDS, f"{name}/rounds/0000[123].h5", _on(name, ON_RUNS), True) for name in RUNS),
    Target(ROUNDS, "runs/half/rounds/*.h5", RESUMES, True),
    *(Target(PARTS, f"{name}/{file}", _on(name, ON_ALL), True) for name in RUNS for file in BESIDE),
    *(Target(PARTS, f"runs/half/{file}", RESUMES, True) for file in BESIDE),
    Target(KEPT, "runs/half/kept/*/*.h5", RESUMES[:2], True),
    *(
        Target(
            FILES,
            f"files/{name}",
            (f"line files/{name} runs/ima@2/global --points 3 --limit 60", f"export files/{name} out.safetensors"),
            False,
        )
        for name in ("m.pt", "m.safetensors", "m.npz")
    ),
    Target(FILES, "files/flower.npz", ("line files/flower.npz runs/ima@2/global --points 3 --limit 60",), False),
    Target(
        FILES,
        "files/data.npz",
        (
            "train --data npz:files/data.npz --clients 4 --rounds 1 --out out",
            "line runs/ima@2/global runs/ima@3/global --points 3 --data npz:files/data.npz",
        ),
        False,
    ),
    Target(FILES, "files/surface.h5", ("import files/surface.h5",), False),
    Target(FILES, "files/plane.npz", ("import files/plane.npz",), False),
    Target(FILES, "results/plane.nc", ("export results/plane.nc out.h5",), False),
    Target(FILES, "files/train.toml", ("train files/train.toml --out out",), False),
    *(
        Target(OUT, f"results/{name}.*", (f"{words} --out results/{name} --redraw",), False)
        for name, words in RESULTS.items()
    ),
)


def build(folder: Path, results: Collection[str] = tuple(RESULTS)) -> None:
    """Make all of it in an empty folder, which is the working one; of the results these, ``plane`` among them."""
    start = {"average": {"start": 2}}
    train(Config.read(merge(preset("ima"), TINY, start)), folder / "runs/ima", workers=1)
    train(Config.read(merge(preset("scaffold"), TINY)), folder / "runs/scaffold", workers=1)
    other = {"run": {"seed": 1}}
    train(Config.read(merge(preset("ima"), TINY, start, other)), folder / "siblings/ima", workers=1)
    train(Config.read(merge(preset("scaffold"), TINY, other)), folder / "siblings/scaffold", workers=1)
    sparse = {"record": {"clients": "none", "globals": "last:1"}}
    scaffold = merge(preset("scaffold"), TINY, {"average": {"method": "ima", "start": 2}}, sparse)
    with suppress(KeyboardInterrupt):
        train(Config.read(scaffold), folder / "runs/half", watcher=_Stopped(2), workers=1)
    files = folder / "files"
    files.mkdir()
    shutil.copyfile(folder / "runs/ima/config.toml", files / "train.toml")
    for name in ("m.pt", "m.safetensors"):
        assert run(["export", "runs/ima@4/global", f"files/{name}"]) == 0
    arrays = load_model("runs/ima@4/global").weights.arrays()
    np.savez(files / "m.npz", **arrays)
    np.savez(files / "flower.npz", *arrays.values())
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(80, 64)).astype(np.float32), np.arange(80) % 10
    np.savez(files / "data.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    grid = np.stack(np.meshgrid([0.0, 1, 2], [0.0, 1, 2], indexing="ij"), axis=-1)
    np.savez(files / "plane.npz", grid=grid, tr_nll=draw.random((3, 3)), tr_err=draw.random((3, 3)),
             bend_coordinates=grid[:3, 0], curve_coordinates=grid[:, 1], ts=np.linspace(0, 1, 3))  # fmt: skip
    for name in results:
        assert run([*RESULTS[name].split(), "--out", f"results/{name}"]) == 0
    assert run(["export", "results/plane.nc", "files/surface.h5"]) == 0
    for path in [path for end in ("pdf", "png", "html") for path in folder.glob(f"results/*.{end}")]:
        path.unlink()  # no input


class _Stopped(Unwatched):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def client(self, round: int, done: int, of: int) -> None:
        if round > self.rounds:
            raise KeyboardInterrupt


def words_of(command: str, clients: dict[str, int]) -> list[str]:
    """A command line, with a client that took part in round 3 in the place of the run's word, and a place to write."""
    for word, client in clients.items():
        command = command.replace(f"client-{word}", f"client-{client}")
    words = command.split()
    if words[0] not in ("ls", "layers", "train", "export") and "--out" not in words:
        words += ["--out", "out/result"]
    return words


def members(folder: Path) -> dict[str, int]:
    """A client of round 3 of each run, by the word that stands for it."""
    return {
        word: int(Run.open(folder / name).round(3).client_ids[0])
        for word, name in (("IMA", "runs/ima"), ("SCAFFOLD", "runs/scaffold"))
    }
