"""What every test shares: figures without a display, no clock in property tests, a federation small enough to work out
by hand, runs that are trained once, and what "the same to rounding" means for trained numbers."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

# Programs that tests run, and no modules with examples; some import a framework that has an environment of its own.
collect_ignore_glob = ["journeys/*", "checkpoints/recorder/*_app.py", "checkpoints/recorder/nvflare_parts.py"]

# Python looks for garbage cycles after every 700 new objects: a twentieth of the suite. Tests that measure memory
# collect by themselves.
gc.set_threshold(20_000, 20, 100)

# Each of several processes of the suite keeps to its share of the cores: a thread a core in each of them takes a third
# longer than one. `make test-elsewhere` takes all of them.
THOROUGH = bool(os.environ.get("THOROUGH"))
if hasattr(os, "sched_setaffinity") and not THOROUGH:
    _place = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    _share = sorted(os.sched_getaffinity(0))[_place :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    if _share:
        os.sched_setaffinity(0, _share)

# A busy machine is no failure, and a failure must come back on the next run.
settings.register_profile("fedscope", deadline=None, derandomize=True, max_examples=60 if THOROUGH else 25)
settings.load_profile("fedscope")


#: the device that whoever runs the tests has asked for
_ASKED = os.environ.get("FEDSCOPE_DEVICE")


def pytest_configure(config: pytest.Config) -> None:
    """Have ``auto`` be the processor, in programs that tests start, too: tests compare bits, and a machine with a GPU
    has others. Not in the process that only hands tests to others, which would take it for what was asked for."""
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        os.environ.setdefault("FEDSCOPE_DEVICE", "cpu")


@pytest.fixture(scope="session")
def asked_device() -> str | None:
    """``FEDSCOPE_DEVICE`` as it was given; None where it was not."""
    return _ASKED


@pytest.fixture(scope="session", autouse=True)
def decoded_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Data sets are decoded into a folder of the tests' own, in their subprocesses too."""
    os.environ["FEDSCOPE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def written_and_not_waited_for() -> Iterator[None]:
    """Nobody cuts the power during a test, so nobody waits 2 ms a file for the disk; what would be synced, and when, is
    watched where it is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@dataclass(frozen=True)
class Small:
    """Three classes in six dimensions, and a network of one hidden layer, all in float64, so that a reference in plain
    torch agrees to rounding.

    Attributes:
        module: ``Sequential(Linear(6, 5), Tanh, Linear(5, 3))``; its head is ``"2"``.
        x, y: 40 samples.
        start: the module's parameters, at rest.
        facts: of a federation of 4 clients.
    """

    module: Any
    x: Any
    y: Any
    start: Any
    facts: Any

    def task(self, **changes: Any) -> Any:
        """Local training of client 2 in round 3 from ``start``: 11 samples, 2 epochs at rate 0.1, its own bench."""
        import numpy as np

        from fedscope.training.local.local_training import LocalTask
        from fedscope.training.local.worker_model import TrainableModel
        from fedscope.training.methods.base import LocalSchedule

        known = {
            "round": 3,
            "client": 2,
            "x": self.x,
            "y": self.y,
            "indices": np.arange(5, 16),
            "start": self.start,
            "pace": LocalSchedule(0.1, 2),
            "seed": 0,
            "facts": self.facts,
            "bench": TrainableModel(self.module),
        }
        return LocalTask(**{**known, **changes})

    def model(self, seed: int) -> Any:
        """Another model of the same layout, at rest."""
        import numpy as np

        from fedscope.checkpoints import Weights

        noise = np.random.default_rng(seed).normal(size=self.facts.layout.size)
        return Weights(self.facts.layout, self.start.parameters + 0.3 * noise, {})

    def clients(self, count: int = 3, seed: int = 0) -> Any:
        """Client rows [C, P] about ``start``."""
        from fedscope.checkpoints import stack

        return stack([self.model(seed + 100 + k) for k in range(count)])

    def cohort(self, samples: Sequence[int] = (10, 30, 60), **changes: Any) -> Any:
        """Clients 0, 1, ... of 4 in round 3, each of them 4 steps at rate 0.1, weighted by their samples."""
        import numpy as np

        from fedscope.training.methods.base import Cohort

        n = np.asarray(samples)
        known = {
            "round": 3,
            "client_ids": np.arange(len(n)),
            "samples": n,
            "steps": np.full(len(n), 4),
            "p": n / n.sum(),
            "clients": 4,
            "lr": 0.1,
            "reach": np.full(len(n), 0.4),
            "label_counts": np.arange(3 * len(n)).reshape(len(n), 3) + 1,
        }
        return Cohort(**{**known, **changes})


@pytest.fixture
def small() -> Small:
    """See :class:`Small`."""
    import torch

    from fedscope.checkpoints import Layout
    from fedscope.training.build import initial_model
    from fedscope.training.models.model_info import ModelInfo

    draw = torch.Generator().manual_seed(7)
    layers = torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)
    module = torch.nn.Sequential(*layers).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) / 2)
    x = torch.randn(40, 6, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 3, (40,), generator=draw)
    layout = Layout.of(module)
    facts = ModelInfo(layout=layout, classes=3, clients=4, seed=0, head="2")
    return Small(module, x, y, initial_model(module), facts)


@pytest.fixture(scope="session")
def close() -> Callable[[Any, Any, float], None]:
    """``close(actual, expected, relative)``: |actual − expected|₂ ≤ relative · |expected|₂.

    For trained numbers. Their last bits depend on the processor, whose vector units add up in different orders, and
    training carries that on into every entry alike: an entry that happens to lie near 0 is as far off as the others. So
    a bound is a share of the vector's norm, never of each entry.
    """
    import numpy as np

    def check(actual: Any, expected: Any, relative: float) -> None:
        one, other = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
        if other.ndim == 0:
            other = np.broadcast_to(other, one.shape)
        assert one.shape == other.shape, f"shapes {one.shape} and {other.shape} differ"
        apart, norm = float(np.linalg.norm(one - other)), float(np.linalg.norm(other))
        assert apart <= relative * norm, (
            f"|actual - expected| / |expected| = {apart / norm if norm else np.inf:.3g}, more than {relative:g}; "
            f"the norms of both are {np.linalg.norm(one):.6g} and {norm:.6g}"
        )

    return check


@pytest.fixture
def by_hand() -> Callable[..., Any]:
    """``by_hand(task, method, step)``: the final parameters [P] when every batch calls ``step(module, x, y) -> loss``
    and plain SGD follows; written with autograd and a loop over parameters, apart from the code it checks.

    ``step`` returns the scalar whose gradient is followed; weight decay, momentum and clipping are left at 0.
    """
    from copy import deepcopy

    import numpy as np
    import torch

    from fedscope.training.local.local_training import batches

    def run(task: Any, method: Any, step: Callable[..., Any]) -> np.ndarray:
        module = deepcopy(task.bench.module)
        module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in task.start.arrays().items()})
        for x, y in batches(task, method):
            gradients = torch.autograd.grad(step(module, x, y), list(module.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                    parameter -= task.pace.lr * gradient
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in module.parameters()])

    return run


@pytest.fixture
def stop_after() -> Callable[[int], Any]:
    """``stop_after(n)``: a watcher that presses Ctrl-C in the middle of the round after n."""
    from fedscope.training.loop.federation import Unwatched

    class StopAfter(Unwatched):
        def __init__(self, rounds: int) -> None:
            self.rounds = rounds

        def client(self, round: int, done: int, of: int) -> None:
            if round > self.rounds and done == min(2, of):
                raise KeyboardInterrupt

    return StopAfter


# --- what would otherwise be done again and again ---


@pytest.fixture(scope="session", autouse=True)
def digits_read_once() -> Iterator[None]:
    """The embedded digits are unpacked and split once a process, 50 ms each time otherwise; nobody may change them."""
    from functools import cache

    from fedscope.evaluation.standard_tasks import CLASSIFICATION
    from fedscope.training.data.published import digits

    read = cache(digits.PROVIDES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "PROVIDES", read)
        yield
    if read.cache_info().hits:
        assert read("", CLASSIFICATION).sha256 == digits.load("").sha256, "a test has changed the digits that all share"


@pytest.fixture(scope="module")
def few_digits() -> Iterator[None]:
    """A fifth of the digits in their place, for modules that train many federations to compare them bit for bit."""
    from fedscope.training.data.published import digits
    from fedscope.training.data.standardize import standardize

    whole = digits.load("")
    arrays = {name: getattr(whole, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    few = standardize("digits", "", {name: values[::5] for name, values in arrays.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "PROVIDES", lambda argument, task=None: few)
        yield


#: whether the test that runs now draws its figures
_drawing = [False]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """A warning of what several tests share is no error, though the one that is run first may ask that of its own."""
    if fixturedef.scope == "function":
        return (yield)
    from fedscope.checkpoints import FedscopeWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", FedscopeWarning)
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a module's fixtures draw is for all of its tests, so that no order of them changes it."""
    module = item.getparent(pytest.Module)
    _drawing[0] = module is not None and module.get_closest_marker("drawn") is not None


@pytest.fixture(autouse=True)
def drawn_or_not(request: pytest.FixtureRequest) -> None:
    """From here on it is the test itself that says it."""
    _drawing[0] = request.node.get_closest_marker("drawn") is not None


@pytest.fixture(scope="session", autouse=True)
def sketched() -> Iterator[None]:
    """Tests build every figure but do not draw it: the file holds a digest of all words, lines, areas and images that
    would be drawn, so that equal figures are equal files and others are not.

    Drawing takes a second a figure and is what the tests of figures are for; ``@pytest.mark.drawn`` asks for it, and
    of a module as a whole for what its fixtures draw, too.
    """
    from matplotlib.figure import Figure

    draw = Figure.savefig

    def save(figure: Any, target: Any, **how: Any) -> None:
        (draw if _drawing[0] else sketch)(figure, target, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield


@pytest.fixture(scope="session")
def really_drawn() -> Callable[[], Any]:
    """``with really_drawn():`` for what a fixture of a module draws for a test that looks at the picture."""

    @contextmanager
    def drawn() -> Iterator[None]:
        before, _drawing[0] = _drawing[0], True
        try:
            yield
        finally:
            _drawing[0] = before

    return drawn


def sketch(figure: Any, target: Any, *, format: str = "png", **_: Any) -> None:
    """``Figure.savefig`` that builds the figure and does not draw it: a picture is a row of its digest's colours."""
    said = _digest(figure).encode()
    if format == "png":
        from PIL import Image

        picture = BytesIO()
        Image.frombytes("L", (len(said), 1), said).save(picture, "png")
        words = picture.getvalue()
    else:
        words = {"pdf": b"%PDF"}.get(format, b"") + b" sketch " + said
    target.write(words) if hasattr(target, "write") else Path(target).write_bytes(words)


def _artists(artist: Any) -> Iterator[Any]:
    """``artist.findobj()`` without ticks, whose making is half of a figure's time: an axis speaks for them."""
    from matplotlib.axis import Axis

    for child in (artist.label, artist.offsetText) if isinstance(artist, Axis) else artist.get_children():
        yield from _artists(child)
    yield artist


def _ticks(axis: Any) -> str:
    """Where an axis has its ticks, what stands at them and how they look."""
    found = []
    for which in ("major", "minor"):
        locations = axis.get_ticklocs(minor=which == "minor")
        formatter = axis.get_major_formatter() if which == "major" else axis.get_minor_formatter()
        look = sorted(axis.get_tick_params(which=which).items())
        found += [[f"{at:.6g}" for at in locations], formatter.format_ticks(locations), look]
    return str(found)


def _digest(figure: Any) -> str:
    import numpy as np
    from matplotlib.axis import Axis
    from matplotlib.text import Text

    seen = hashlib.sha256(str(figure.get_size_inches()).encode())
    for artist in _artists(figure):
        seen.update(type(artist).__name__.encode())
        if isinstance(artist, Axis):
            seen.update(_ticks(artist).encode())
        if isinstance(artist, Text):
            seen.update(artist.get_text().encode())
        for name in ("get_xydata", "get_array", "get_offsets", "get_facecolor", "get_xlim", "get_ylim"):
            value = getattr(artist, name, lambda: None)()
            if value is not None and not isinstance(value, str):
                drawn = np.ma.filled(np.ma.asarray(value, dtype=float), np.nan)
                seen.update(drawn.astype(np.float32).tobytes())  # no picture shows more digits
    return seen.hexdigest()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[..., Path]:
    """``recorded(path, *words)``: ``fedscope train WORDS`` at ``path``, trained once for all tests and processes
    and copied, so that a test may spoil its own."""
    from filelock import FileLock

    base = tmp_path_factory.getbasetemp()
    store = (base if worker_id == "master" else base.parent) / "recorded"
    store.mkdir(exist_ok=True)

    def at(path: Path, *words: str) -> Path:
        from fedscope.cli.main import run

        asked: dict[str, str] = {}
        for flag, value in zip(words[::2], words[1::2], strict=True):
            key, _, setting = value.partition("=")
            asked[f"{flag} {key}=" if flag == "--set" else f"{flag} "] = setting if flag == "--set" else value
        asked_words = [word for start in sorted(asked) for word in f"{start}{asked[start]}".split(" ", 1)]
        from fedscope.training import load_data

        data = load_data(asked.get("--data ", "digits")).sha256  # some modules train on few digits
        kept = store / hashlib.sha256(" ".join([data, *asked_words]).encode()).hexdigest()[:16]
        with FileLock(f"{kept}.lock"):
            if not kept.is_dir():
                assert run(["train", *asked_words, "--out", f"{kept}.new"]) == 0
                Path(f"{kept}.new").rename(kept)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(kept, path)
        return path

    return at


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    """A folder with ``runs/fma``, two rounds of a tiny network on eight clients, and ``runs/lora``, adapters of three
    clients; to be read only."""
    folder = tmp_path_factory.mktemp("trained")
    words = "--method fma --clients 8 --participation 1 --rounds 2 --set model.hidden=[6] --set run.evaluate_clients=0"
    recorded(folder / "runs" / "fma", *words.split())
    record_adapters(folder / "runs" / "lora")
    return folder


def record_adapters(path: Path) -> None:
    """Two rounds of a LoRA adapter and a head in three clients."""
    from fedscope import Recorder

    draw = np.random.default_rng(0)
    shapes = {"q.lora_A.weight": (2, 5), "q.lora_B.weight": (4, 2), "head.weight": (3, 4)}

    def state() -> dict[str, np.ndarray]:
        return {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that factors are averaged
        with Recorder(path, lora_alpha=4) as recorder:
            for _ in range(2):
                recorder.round(start=state(), clients=[state() for _ in range(3)], global_=state())


@pytest.fixture
def here(two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder but for ``runs/fma`` of ``two_rounds``, which is linked."""
    (tmp_path / "runs").symlink_to(two_rounds / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def runs(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a module's ``trained`` runs to work in, and to spoil."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """``said("runs/fma", "--out", "f")``: what the command prints that the test's module calls ``COMMAND``."""

    def say(*words: str) -> str:
        from fedscope.cli.main import fedscope

        capsys.readouterr()
        fedscope.main([request.module.COMMAND, *words], standalone_mode=False)
        return capsys.readouterr().out

    return say


@pytest.fixture(scope="module")
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, recorded: Any) -> Path:
    """A folder with a run for each name in the module's ``RUNS``, from its words for ``fedscope train``; to be read."""
    folder = tmp_path_factory.mktemp("trained")
    for name, words in request.module.RUNS.items():
        recorded(folder / "runs" / name, *words.split())
    return folder


@pytest.fixture
def rewrite() -> Callable[..., list[int]]:
    """``rewrite(run, 2, keep=1, without=["start"])``: round 2 again, of its first client only and without its start;
    ``change`` may alter the models in place, by name. Returns the clients' ids."""

    def rewrite(
        run: Path | str, number: int, change: Any = None, *, keep: int | None = None, without: Sequence[str] = ()
    ) -> list[int]:
        from fedscope.checkpoints import RoundRecord, Run, Weights, write_round

        round_, first = Run.open(run).round(number), slice(keep)
        models = {"clients": round_.clients(), **{which: round_.read(which) for which in round_.models}}
        if change is not None:
            change(models)
        rows = models["clients"]
        buffers = {name: values[first] for name, values in rows.buffers.items()}
        models["clients"] = Weights(rows.layout, rows.parameters[first], buffers)
        held = (None if name in without else models.get(name) for name in ("start", "clients", "global", "averaged"))
        about = (round_.client_ids, round_.client_samples, round_.client_steps, round_.client_loss, round_.weights)
        ids, samples, steps, loss, p = (values[first] for values in about)
        round_.path.unlink()
        record = RoundRecord(number, *held, ids, samples, steps, loss, p / p.sum(), metrics=round_.metrics)
        write_round(round_.path, record, identity=round_.identity)
        return [int(k) for k in ids]

    return rewrite
