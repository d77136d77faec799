"""What the pages say is so: every command and every Python block in them runs, and the reference is the code's own.

A page is played from top to bottom in a folder that holds the runs of the README's tour. In a `sh` block every line
that calls fedscope must end with 0, and each `# -> PATH` must then exist. In a `console` block the lines below `$ ...`
must be printed, in that order, numbers and width of gaps apart (`…` stands for what is left out), and every path among
them must exist; a `^C` below a command interrupts it in its fifth round. Commands for `--device cuda` are left out
where there is no such device, and those on CIFAR-10 always: `docs/make_gallery.py` gives them.
"""

from __future__ import annotations

import difflib
import doctest
import importlib.util
import inspect
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import click
import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedscope
from fedscope.analysis.register import analyses
from fedscope.cli.main import Tour, commands, run, sections
from fedscope.results import Result
from fedscope.training import Config
from fedscope.training.settings.registry import names

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
#: pages that take longer than a few seconds
SLOW = {
    "index.md",
    "formats.md",
    "methods.md",
    "python.md",
    "howto/own-methods.md",
    "howto/own-data.md",
    "howto/models.md",
    "howto/any-loss.md",
    "howto/optimisers.md",
    "howto/subsets.md",
    "howto/forgetting.md",
    "howto/adapters.md",
    "howto/merges.md",
    "howto/matrix.md",
    "howto/layers.md",
    "howto/disk.md",
    "howto/decomposition.md",
    "howto/compare.md",
    "howto/resume.md",
    "howto/own-checkpoints.md",
    "howto/gpu.md",
    "howto/speed.md",
    "howto/landscape.md",
    "howto/sharpness.md",
    "howto/explain.md",
    "howto/report.md",
    "howto/figures.md",
    "howto/cka.md",
    "howto/theory.md",
    "howto/dispersion.md",
    "howto/embedding.md",
    "howto/parameters.md",
    "howto/updates.md",
    "howto/what-if.md",
    "howto/check.md",
    "howto/experiments.md",
    "howto/slurm.md",
    "howto/wima.md",
    "howto/record-own-loop.md",
    "howto/decentralised.md",
    "howto/measure.md",
    "gallery.md",
}
#: played by tests of their own: in the frameworks' environments (tests/checkpoints/recorder/test_*_long.py), in Ray's
#: (tests/training/local/test_ray_long.py), with the trackers (tests/training/trackers/test_trackers_long.py), on MNIST
#: and with transformers (below)
OWN_TESTS = {
    *("howto/record-flower.md", "howto/record-nvflare.md", "howto/record-pfl.md", "howto/record-blazefl.md"),
    *("howto/cluster.md", "howto/soup.md", "howto/language-models.md", "howto/trackers.md"),
}
#: the papers' commands take hours: `make papers` runs each, which tests/test_papers.py tries in small
ELSEWHERE = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name not in ("reference", "papers")]


@dataclass(frozen=True)
class Step:
    """A command or a Python program of a page, and the lines that the page shows below it."""

    place: str
    language: str
    text: str
    shown: tuple[str, ...] = ()


def steps_of(page: Path) -> Iterator[Step]:
    """Everything on a page that can be run, in order."""
    fence = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    text = page.read_text(encoding="utf-8")
    for block in fence.finditer(text):
        place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, block.start()) + 1}"
        language, body = block[1], block[2].replace("\\\n", " ")
        if language == "python":
            yield Step(place, "python", body)
        elif language == "sh":
            for part in re.split(r"\n(?!# -> )", body.strip()):
                command, *files = part.splitlines()
                yield Step(place, "sh", command, tuple(file.removeprefix("# -> ") for file in files))
        elif language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, *lines = part.splitlines()
                yield Step(place, "console", command, tuple(line for line in lines if line.strip()))


def play(
    page: Path,
    folder: Path,
    added: Mapping[str, str] | None = None,
    around: Callable[[Step], AbstractContextManager[None]] = lambda step: nullcontext(),
) -> None:
    """Run a page's steps in a folder, each inside of its ``around``; those named in ``added`` with more words."""
    for step in steps_of(page):
        with around(step):
            play_step(replace(step, text=step.text + (added or {}).get(step.text, "")), folder)


def play_step(step: Step, folder: Path) -> None:
    """Run a step, and compare what it prints and leaves with what the page shows."""
    if step.language == "python":
        output = here(step, folder)
    elif (
        not re.search(r"\bfedscope ", step.text)
        or torch.cuda.device_count() < _cuda_devices(step.text)
        or "cifar10" in step.text
    ):
        return
    elif step.shown[:1] == ("^C",):
        output = interrupt(step, folder)
    elif "^C" in step.shown:
        output = look_and_interrupt(step, folder)
    else:
        output = here(step, folder) if is_plain(step) else finish(step, ["sh", "-c", step.text], folder)
    if step.language == "console":
        assert_shown(step, output)
    for line in step.shown:
        is_path = step.language == "sh" or re.fullmatch(r"  \S+", line)
        assert not is_path or (folder / line.strip()).exists(), f"{step.place}: {line.strip()} is not there"


def _cuda_devices(text: str) -> int:
    """How many GPUs a command needs."""
    return 0 if "cuda" not in text else 1 + max(map(int, re.findall(r"cuda:(\d+)", text)), default=0)


def is_plain(step: Step) -> bool:
    """Whether a command is fedscope with its words and nothing for a shell to do."""
    return step.text.startswith("fedscope ") and not re.search(r"[|&;<>$`*?~#]", step.text)


def here(step: Step, folder: Path) -> str:
    """Run a command or a program in this process, which has loaded torch already: two to four seconds less each."""
    output, before, path = io.StringIO(), set(sys.modules), list(sys.path)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
        patch.chdir(folder)
        patch.setenv("COLUMNS", "200")
        try:
            if step.language == "python":
                exec(compile(step.text, step.place, "exec", dont_inherit=True), {"__name__": "__main__"})
                code = 0
            else:
                code = run(shlex.split(step.text)[1:])
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - before:  # a page's own modules
                if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                    del sys.modules[name]
    assert code == 0, f"{step.place}: {step.text}\nended with {code}:\n{output.getvalue()}"
    return output.getvalue()


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}


def finish(step: Step, words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{step.place}: {step.text}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stderr + done.stdout


def interrupt(step: Step, folder: Path) -> str:
    """Press Ctrl-C in the fifth round of a training."""
    before = set(folder.rglob("rounds/*.h5"))
    process = subprocess.Popen(
        step.text.split(),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 120
    while len(set(folder.rglob("rounds/*.h5")) - before) < 5 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, f"{step.place}: {step.text}\nended with {process.returncode}:\n{output}"
    return output


def look_and_interrupt(step: Step, folder: Path) -> str:
    """Open the page that a command serves, on a port that is free, and press Ctrl-C."""
    words, out = [*step.text.split(), "--port", "0"], subprocess.PIPE
    process = subprocess.Popen(words, cwd=folder, env=environment(), stdout=out, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    try:
        with urlopen(first.split(" ")[0], timeout=60) as page:
            assert page.status == 200
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130, f"{step.place}: {step.text}\nended with {process.returncode}:\n{first}{rest}"
    return first + rest


def masked(line: str) -> str:
    """A line without its numbers (``0`` and ``3e-16`` alike) and the width of its gaps.

    >>> masked("runs/ima   60 of 60  5.6 %"), masked("closes to 4e-16")
    ('runs/ima # of # # %', 'closes to #')
    """
    return re.sub(r"\s+", " ", re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", line.strip()))


def assert_shown(step: Step, output: str) -> None:
    """The shown lines are among the printed ones, in that order."""
    printed = iter([masked(line) for line in output.splitlines()])
    for line in step.shown:
        wanted = masked(line)
        if wanted in ("…", "^C"):
            continue
        whole = not wanted.endswith("…")
        found = any(line == wanted if whole else line.startswith(wanted[:-1].rstrip()) for line in printed)
        assert found, f"{step.place}: {step.text}\ndoes not print: {line}\nbut:\n{output}"


#: commands of the tour whose runs only pages that are slow look at in detail, rounds enough for what the tour asks, and
#: points enough for the first picture
SHORTER = {
    "fedscope plane runs/ima --rounds 1,20,last --grid 41 --width 7in --out figures/planes": " --grid 31",
    "fedscope train --method fma": " --set run.rounds=42",
    "fedscope train --method scaffold": " --set run.rounds=20",
    "fedscope train --from runs/fma@40 --method scaffold": " --set run.rounds=50",
}


#: of the command that draws it
FIRST_PICTURE = "plane runs/ima --rounds"


@pytest.fixture(scope="session")
def tour(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, really_drawn: Any) -> Path:
    """The folder that the README's tour leaves, of whose figures the first one is drawn."""
    folder = tmp_path_factory.mktemp("tour")
    assert set(SHORTER) <= {step.text for step in steps_of(README)}
    shorter = SHORTER if pytestconfig.option.markexpr.startswith("not slow") else None
    play(README, folder, shorter, lambda step: really_drawn() if FIRST_PICTURE in step.text else nullcontext())
    return folder


def test_the_tour_of_the_readme_runs_and_prints_what_it_shows(tour: Path) -> None:
    assert len([step for step in steps_of(README) if step.language == "console"]) >= 6
    assert {"runs", "figures"} <= {path.name for path in tour.iterdir()}


def test_the_first_picture_is_what_the_tours_command_leaves(tour: Path) -> None:
    """The same panels, markers and words in the same places; numbers after the training differ by processor."""
    from PIL import Image

    with Image.open(DOCS / "figures" / "planes.png") as kept, Image.open(tour / "figures" / "planes.png") as drawn:
        high = drawn.height * kept.width / drawn.width
        assert kept.height == pytest.approx(high, abs=1)
        here, there = (np.asarray(one.convert("RGB").resize((240, 120)), dtype=float) for one in (kept, drawn))
    # of 255: a picture with fewer points an inch is off by 2, with two panels exchanged by 8, of half the width by 66
    assert np.abs(here - there).mean() < 6


def test_the_demo_draws_the_first_picture_as_the_tour_does() -> None:
    from fedscope.cli.commands.demo import STEPS

    asked = [step.text.split()[1:] for step in steps_of(README) if "plane runs/ima --rounds" in step.text]
    demo = [
        [word.replace("{out}/", "") for word in step] for step in STEPS if "--rounds" in step and step[0] == "plane"
    ]
    assert [[word.rpartition("/")[2] for word in words] for words in asked] == demo


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if str(page.relative_to(DOCS)) in SLOW else ())
        for page in ELSEWHERE
        if any(True for _ in steps_of(page)) and str(page.relative_to(DOCS)) not in OWN_TESTS
    ],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_a_page_runs_and_prints_what_it_shows(page: Path, tour: Path, tmp_path: Path) -> None:
    shutil.copytree(tour / "runs", tmp_path / "runs")
    shutil.copytree(DOCS / "examples", tmp_path / "docs" / "examples")  # as in a clone
    play(page, tmp_path)


def test_the_page_on_own_methods_shows_what_new_writes_and_the_examples_as_they_are() -> None:
    from fedscope.training.user_code.templates import filled

    shown = [step.text for step in steps_of(DOCS / "howto" / "own-methods.md") if step.language == "python"]
    assert filled("server", "fedx") in shown
    example = (DOCS / "examples" / "trimmed_mean.py").read_text(encoding="utf-8")
    (step,) = [text.partition("def step")[2].strip() for text in shown if "class TrimmedMean" in text]
    assert step == example.partition("def step")[2].strip()


AGENTS = ROOT / "AGENTS.md"


@pytest.mark.slow
def test_what_agents_are_told_to_do_works_and_is_json(tour: Path, tmp_path: Path) -> None:
    shutil.copytree(tour / "runs", tmp_path / "runs")
    for step in steps_of(AGENTS):
        play_step(step, tmp_path)
        if "--json" in step.text:
            printed = finish(step, ["sh", "-c", f"{step.text} 2>/dev/null"], tmp_path)
            said = json.loads(printed)
            assert printed.count("\n") == 1
            if "--out" in step.text:
                assert all((tmp_path / file).exists() for file in said["files"])


def test_agents_are_told_of_commands_options_and_files_that_there_are() -> None:
    """Which wrong line would pass: a command that was renamed, an option that a command does not have, a page gone."""
    text = AGENTS.read_text(encoding="utf-8")
    called = [step.text for step in steps_of(AGENTS) if step.language == "sh"]
    called += re.findall(r"`(fedscope [^`]+)`", text)
    asked = [words for words in (line.split()[1:] for line in called) if not words[0].isupper()]
    assert len(asked) > 20
    tour = Tour()
    for words in asked:
        if words[0].startswith("-"):
            continue
        command = tour.get_command(click.Context(tour), words[0])
        assert command is not None, words
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= known, words
    for page in re.findall(r"docs/\S+?\.md", text):
        assert (ROOT / page).is_file(), page
    said = " ".join(text.split())
    assert "Exit status 0 is success. 2 is a mistake" in said
    assert "130 is Ctrl-C, 143 SIGTERM" in said
    assert run(["ls", "nothing-there"]) == 2
    assert len(text.splitlines()) <= 100


@pytest.mark.slow
def test_the_page_on_language_models(tmp_path: Path) -> None:
    from fedscope.distributed.torchvision_import import beside_torchvision

    def imported() -> None:
        __import__("torchvision")
        pytest.importorskip("transformers", reason="transformers is in the extra language")

    beside_torchvision(imported)
    play(DOCS / "howto" / "language-models.md", tmp_path)


@pytest.mark.slow
def test_the_page_on_soups_tells_a_collapse_from_a_good_one(tmp_path: Path) -> None:
    """On MNIST where FEDSCOPE_MNIST names its .npz, else on the digits in its size."""
    mnist = os.environ.get("FEDSCOPE_MNIST", "")
    if mnist:
        shutil.copy(mnist, tmp_path / "mnist.npz")
    else:
        write_digits_as_mnist(tmp_path / "mnist.npz")
    play(DOCS / "howto" / "soup.md", tmp_path)
    from fedscope import Decomposition

    factors = {run.run: run.rounds[0] for run in Decomposition.load(tmp_path / "figures" / "why").runs}
    bias, locality = ({name: one.row(factor).value for name, one in factors.items()} for factor in ("bias", "locality"))
    # the ensembles are alike, and the soups are not
    assert 0.3 < bias["bad"] / bias["good"] < 3
    assert locality["bad"] > 0.5 > 0.1 > abs(locality["good"])


def write_digits_as_mnist(path: Path) -> None:
    """Digits of 8 x 8 pixels, each enlarged three times and framed, as often as there are samples in the page."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron(digits.images, np.ones((1, 3, 3))) * 255 / 16
    images = np.pad(images, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    many = np.resize(np.arange(1400), 20_000)
    split = {"train": many, "test": np.arange(1400, len(images))}
    arrays = {
        f"{name}_{part}": values[rows]
        for part, rows in split.items()
        for name, values in (("x", images), ("y", digits.target))
    }
    np.savez(path, **arrays)


def examples_of(name: str) -> list[str]:
    """The commands in the last lines of a help text."""
    epilog = Tour().get_command(click.Context(Tour()), name).epilog  # type: ignore[union-attr]
    return [part[part.index("fedscope ") :] for part in str(epilog).splitlines() if "fedscope " in part]


@pytest.mark.slow
def test_the_examples_in_the_help_texts_run(tour: Path, tmp_path: Path) -> None:
    shutil.copytree(tour, tmp_path / "tour")
    (tmp_path / "empty").mkdir()
    folder = tmp_path / "tour"
    alphas, betas = np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 1, 4), indexing="ij")
    values = {f"{split}_{what}": alphas + betas for split in ("tr", "te") for what in ("loss", "nll", "err")}
    bends, grid = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0]]), np.stack([alphas, betas], axis=-1)
    with h5py.File(folder / "surface.h5", "w") as surface:
        surface["xcoordinates"], surface["ycoordinates"] = alphas[:, 0], betas[0]
        surface["train_loss"] = alphas + betas
    np.savez(folder / "plane.npz", alphas=alphas[:, 0], betas=betas[0], grid=grid, bend_coordinates=bends, **values)
    for path in ("base", "checkpoints/a", "checkpoints/b", "ckpt/round-1/client-0", "ckpt/round-1/client-1"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        save_file({"weight": torch.ones(2)}, folder / f"{path}.safetensors")
        torch.save({"weight": torch.ones(2)}, folder / f"{path}.pt")
    write_material(folder)
    for name in commands():
        if name in ("measure", "import"):  # each has one of its own
            shutil.rmtree(folder / "runs" / "mine", ignore_errors=True)
        if name == "measure":
            record_digits(folder / "runs" / "mine", model="mlp", data="digits")
        if name == "export":
            shutil.copy(next(folder.glob("runs/*/figures/plane-*.nc")), folder / "figures" / "plane.nc")
            (folder / "surface.h5").unlink()
        if name == "table":  # a grid, whose best value is asked for
            grid_of = "fedscope sweep method=fedprox,moon client.mu=0.01,0.1 --set run.rounds=2 --set data.clients=5"
            finish(Step(name, "sh", grid_of), ["sh", "-c", grid_of], folder)
        given = examples_of(name)
        assert given
        for text in given:
            if "cifar10" in text or name == "watch":  # which no test has; and what does not end
                continue
            text = text.replace("--launcher slurm", "--launcher processes")  # which need no cluster, and do the same
            step = Step(f"fedscope {name} --help", "sh", text)
            finish(step, ["sh", "-c", text], tmp_path / "empty" if name in ("train", "demo") else folder)


def write_material(folder: Path) -> None:
    """What the examples name besides the tour: adapters, networks of a module, data, and runs of other programs."""
    from conftest import record_adapters

    record_adapters(folder / "runs" / "lora")
    (folder / "nets.py").write_text("from torch import nn\ndef small():\n    return " + SMALL)
    (folder / "task.py").write_text(TASK)
    for seed, name in enumerate("abc"):
        torch.manual_seed(seed)
        torch.save(eval(SMALL, {"nn": torch.nn}).state_dict(), folder / f"{name}.pt")
        (folder / "steps").mkdir(exist_ok=True)
        shutil.copy(folder / f"{name}.pt", folder / "steps" / f"step-{seed}.pt")
    write_digits_as_mnist(folder / "mnist.npz")
    record_digits(folder / "runs" / "flower")
    record_ring(folder / "runs" / "ring")


TASK = """
from sklearn.datasets import load_digits

from fedscope.training.build import build_module
from fedscope.training.models.architectures.mlp import MLP


def Net():
    return build_module(MLP(), (1, 8, 8), 10)


def test_set():
    digits = load_digits()
    return (digits.images[:, None] / 16).astype("float32"), digits.target
"""
SMALL = "nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 10))"


def record_digits(path: Path, **named: str) -> None:
    """A round of networks for digits, as a loop of somebody else recorded it."""
    from fedscope import Recorder
    from fedscope.training.build import build_module
    from fedscope.training.models.architectures.mlp import MLP

    states = []
    for seed in range(3):
        states.append(build_module(MLP(), (1, 8, 8), 10, seed=seed).state_dict())
    with Recorder(path, **named) as recorder:  # type: ignore[arg-type]
        recorder.round(start=states[0], clients=states[1:], global_=states[0])


def record_ring(path: Path) -> None:
    """Twenty rounds of three nodes that give what they have to each other, without a server."""
    from fedscope import Recorder
    from fedscope.training.build import build_module
    from fedscope.training.models.architectures.mlp import MLP

    modules = [build_module(MLP(), (1, 8, 8), 10, seed=seed) for seed in range(3)]
    starts = [{name: value.numpy() for name, value in module.state_dict().items()} for module in modules]
    mixing = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]], np.float32)
    with Recorder(path, model="mlp", data="digits") as recorder:
        for _ in range(20):
            recorder.round(starts=starts, clients=starts, mixing=mixing)
            starts = [
                {name: sum(p * one[name] for p, one in zip(row, starts, strict=True)) for name in starts[0]}
                for row in mixing
            ]


def test_the_pages_are_seen() -> None:
    assert {"index.md", "formats.md", "own-data.md", "resume.md"} <= {page.name for page in ELSEWHERE}
    assert {page for page in SLOW if not (DOCS / page).is_file()} == set()
    steps = list(steps_of(DOCS / "howto" / "resume.md"))
    assert steps[0].shown[0] == "^C"
    assert steps[2].text == "fedscope train --resume runs/long"
    own = list(steps_of(DOCS / "howto" / "own-checkpoints.md"))
    assert [step.language for step in own][:4] == ["python", "sh", "sh", "python"]
    assert own[1].shown[-1] == "figures/plane-a-b-c.html"


@pytest.mark.parametrize("wrong", ["something else", "runs/fma: 5 rounds; and then nothing", "… and more"])
def test_a_line_that_is_not_printed_is_seen(wrong: str) -> None:
    with pytest.raises(AssertionError, match="does not print"):
        assert_shown(Step("page:1", "console", "fedscope ls", (wrong,)), "runs/fma: 60 rounds; 3.4 %\n")
    assert_shown(Step("page:1", "console", "fedscope ls", ("runs/fma: 5 rounds; …",)), "runs/fma: 60 rounds; 3.4 %\n")


# --- the reference ---


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_reference_is_up_to_date() -> None:
    stale = [
        line
        for path, text in script("generate").pages().items()
        for line in difflib.unified_diff(path.read_text(encoding="utf-8").splitlines(), text.splitlines(), lineterm="")
    ]
    assert not stale, "run: python docs/generate.py\n" + "\n".join(stale)


def test_every_command_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in commands() if f"\n## fedscope {name}\n" not in text] == []
    assert [name for name in commands() if f"Usage: fedscope {name} " not in text] == []


def every_setting() -> set[str]:
    """All keys, from configurations that choose each model and method once."""
    shelves = {"model": "models", "client": "clients", "server": "servers", "average": "averages"}
    found = set()
    for section, shelf in shelves.items():
        selector = "name" if section == "model" else "method"
        for name in names(shelf):
            for part, table in Config.read({section: {selector: name}}).tables().items():
                found |= {f"{part}.{key}" for key in table}
    return found


def test_every_setting_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    assert len(every_setting()) > 30
    assert sorted(place for place in every_setting() if f"`{place}`" not in text) == []
    for shelf in ("models", "clients", "servers", "averages", "partitions", "data"):
        assert [name for name in names(shelf) if not re.search(rf"`{name}\b", text)] == []


def test_every_data_set_partition_and_model_is_among_the_methods() -> None:
    lines = (DOCS / "methods.md").read_text(encoding="utf-8").splitlines()
    for shelf in ("data", "partitions", "models"):
        assert [name for name in names(shelf) if not any(re.match(rf"\| `{name}[`:\[]", line) for line in lines)] == []


def test_every_command_answers_a_question_and_stands_where_the_help_has_it() -> None:
    text = (DOCS / "questions.md").read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}
    assert [title for title in parts if title in sections()] == list(sections())
    for title, lines in sections().items():
        missing = [name for name in lines if not re.search(rf"`fedscope {name}\b", parts[title])]
        assert missing in ([], ["demo"])
    assert "`fedscope demo`" in text


def test_every_how_to_is_on_the_first_page_and_in_the_sidebar() -> None:
    pages = {f"howto/{page.name}" for page in (DOCS / "howto").glob("*.md")}
    assert pages <= set(re.findall(r"\]\(([^)#]+)\)", (DOCS / "index.md").read_text(encoding="utf-8")))
    assert pages <= set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))


# --- the page of functions and classes ---


def test_every_public_name_says_what_it_is() -> None:
    """A docstring of its own, whose first paragraph is a sentence."""
    public = [name for name in fedscope.__all__ if not name.startswith("__")]
    said = {name: (getattr(fedscope, name).__doc__ or "").strip().partition("\n\n")[0] for name in public}
    assert [name for name, first in said.items() if not first.endswith((".", ":")) or len(first.split()) < 3] == []
    # what inherits its docstring has none
    assert [name for name in public if getattr(fedscope, name).__doc__ is Result.__doc__] == []


def test_every_public_name_is_on_the_page() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (?:class )?fedscope\.(\w+)$", text, re.MULTILINE)
    assert sorted(headings) == sorted(name for name in fedscope.__all__ if not name.startswith("__"))


def test_every_result_that_a_question_gives_is_public() -> None:
    text = (DOCS / "python.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| question \| function \| result \|\n\| --- .*\n((?:\|.*\n)+)", text, re.MULTILINE)
    results = [name for line in table.splitlines() for name in re.findall(r"`([A-Z]\w+)`", line.split(" | ")[-1])]
    assert len(results) > 30
    assert [name for name in results if name not in fedscope.__all__] == []
    assert [one.name for one in analyses() if not one.answers] == []


EXAMPLES = {
    heading: blocks
    for part in (DOCS / "reference" / "python.md").read_text(encoding="utf-8").split("\n### ")[1:]
    for heading, blocks in [(part.partition("\n")[0], re.findall(r"^```pycon\n(.*?)^```$", part, re.M | re.S))]
    if blocks
}


#: public functions without an example: they need adapters, a plane's many parts, draws, another library or the network
NO_EXAMPLE = {"adapters", "survey", "decompose_round", "partition_mod", "download"}
NO_EXAMPLE |= {"record", "record_blazefl", "record_nvflare", "record_pfl"}


def test_every_public_function_shows_an_example() -> None:
    functions = {name for name in fedscope.__all__ if inspect.isroutine(getattr(fedscope, name))}
    assert functions - {heading.removeprefix("fedscope.") for heading in EXAMPLES} == NO_EXAMPLE


@pytest.mark.parametrize("heading", EXAMPLES)
def test_an_example_of_the_page_runs_as_it_stands(heading: str) -> None:
    """From nothing but what it imports itself; in its module it runs with the doctests."""
    assert {"fedscope.plane", "fedscope.train", "class fedscope.Recorder"} <= set(EXAMPLES)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for block in EXAMPLES[heading]:
        told: list[str] = []
        example = doctest.DocTestParser().get_doctest(block, {}, heading, "reference/python.md", 0)
        assert doctest.DocTestRunner(optionflags=flags).run(example, out=told.append).failed == 0, "".join(told)


def test_docstrings_become_markdown_as_their_examples_say() -> None:
    script("generate")  # which finds what lies beside it
    found = doctest.testmod(importlib.import_module("docstrings"))
    assert found.attempted >= 4
    assert found.failed == 0


# --- the site ---


@pytest.mark.parametrize("page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_pictures_are_small(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://", "#")):
            continue
        file = page.parent / target.partition("#")[0]
        assert file.exists(), f"{target} does not exist"
        assert file.suffix != ".png" or file.stat().st_size <= 200_000, f"{target} is too large"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_has_every_page_and_the_notebooks_as_they_are(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    assert [str(page) for page in sorted(pages) if not (site / page).is_file()] == []
    for book in DOCS.rglob("*.ipynb"):
        assert (site / book.relative_to(DOCS)).read_bytes() == book.read_bytes()
    assert not list(site.rglob("*.py"))


def test_the_site_loads_nothing_from_another_host(site: Path) -> None:
    """Scripts, styles, fonts and pictures; a link that a reader may follow is none of these."""
    loaded = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
        r"""|<link\b[^>]*\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    )
    for page in site.rglob("*.html"):
        assert loaded.findall(page.read_text(encoding="utf-8")) == [], page
    fetched = re.compile(r"""url\(\s*["']?(?:https?:)?//[^)]*|@import\b.*""")
    for style in site.rglob("*.css"):
        assert fetched.findall(style.read_text(encoding="utf-8")) == [], style


def test_a_newcomers_words_are_found(site: Path) -> None:
    """In the index of the search, which splits at blanks and hyphens."""
    kept = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    text = {one["location"]: f"{one['title']} {one['text']}".lower() for one in kept}
    words = ["flower", "checkpoint", "gpu", "locality", "barrier", "resume", "non-iid", "heterogeneous", "swa", "soup"]
    words += ["loss landscape", "install", "citation"]
    assert [word for word in words if not any(word in said for said in text.values())] == []
    assert "reference/python.html#fedscopeplane" in text, "written pages are searched, too"


def test_the_first_page_shows_the_figure_that_its_two_commands_leave() -> None:
    steps = list(steps_of(DOCS / "index.md"))
    assert [step.text for step in steps[:2]] == ["pip install -c constraints.txt .", "fedscope demo"]
    assert "demo/planes.png" in steps[1].shown
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    assert text.index("](figures/planes.png)") < text.index("fedscope demo") < text.index("## Four questions")
    asked = text.partition("## Four questions")[2].partition("\n## ")[0]
    assert asked.count("\n### ") == 4
