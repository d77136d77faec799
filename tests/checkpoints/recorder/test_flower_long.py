"""Flower as it is, recorded: its own strategies, its simulation and the page, in an environment that has it.

The environment is that of ``benchmarks/against_frameworks.py``, which is made once a machine in ``benchmarks/.peers``;
what recording needs comes beside it on the path, and nothing else of fedscope's own environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.rounds.verify import check_round

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
APP = Path(__file__).with_name("flower_app.py")
PAGE = ROOT / "docs" / "howto" / "record-flower.md"
CLIENTS, ROUNDS = 6, 3
PRIVATE = [
    f"DifferentialPrivacy{side}Side{kind}Clipping" for side in ("Server", "Client") for kind in ("Fixed", "Adaptive")
]
AVERAGES = ["FedAvg", "FedAvgM", "FedProx"]
OTHERS = ["FedAdam", "FedAdagrad", "FedYogi", "FedMedian", "FedTrimmedAvg", "Krum", "Bulyan"]
EVALUATING = [f"{kind}{name}+evaluating" for kind in ("", "old:") for name in ("FedAvg", PRIVATE[0])]
#: QFedAvg of the message interface fails on whole numbers, recorded or not
HERE = [
    *(f"{kind}{name}" for kind in ("", "old:") for name in AVERAGES + OTHERS + PRIVATE),
    *("MultiKrum", "QFedAvg+floats", "old:QFedAvg", "old:FaultTolerantFedAvg", "old:DPFedAvgFixed"),
    *("FedAvg+half", "FedAdam+half", "FedMedian+half", "old:FedAvg+half", "FedAvg+lists"),
    *(f"{kind}FedAvg+{word}" for kind in ("", "old:") for word in ("failing", "unnumbered", "raising")),
    *EVALUATING,
]
SIMULATED = ["FedAvg+evaluating", "FedAvg", "FedAdam", "FedMedian", "FedTrimmedAvg", "old:FedAvg", "old:FedAdam"]


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a script in Flower's environment, and gives what it prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        import against_frameworks
        from recording_flower import beside

        folder = ROOT / "benchmarks" / ".peers"
        folder.mkdir(exist_ok=True)
        with FileLock(folder / "lock"):
            try:
                python = against_frameworks.environment(folder, against_frameworks.FLOWER)
            except against_frameworks.NotHere as why:
                pytest.skip(f"{against_frameworks.FLOWER.requirement} cannot be installed: {why}")
    home = tmp_path_factory.mktemp("home")
    light = beside(home / "beside", against_frameworks.FLOWER)
    words = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

    def run(*script: str | Path, cwd: Path) -> str:
        return finished([python, *script], cwd, {"PYTHONPATH": str(light), **words})

    return run


def finished(command: list[Any], cwd: Path, words: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **(words or {})},
        capture_output=True,
        text=True,
        timeout=2700,  # for what hangs: seven simulations, each of which takes minutes on a busy machine
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-5000:]}"
    return done.stdout


def asked(folder: Path, *words: str) -> str:
    """What the command prints."""
    return finished([Path(sys.executable).with_name("fedscope"), *words], folder)


def read(path: Path) -> list[np.ndarray]:
    with np.load(path) as file:
        return [file[name] for name in file.files]


def bits(arrays: Any, types: list[np.dtype[Any]] | None = None) -> list[tuple[Any, ...]]:
    """Types, shapes and bytes."""
    found = [array.astype(types[i]) if types else array for i, array in enumerate(arrays)]
    return [(array.dtype.str, array.shape, array.tobytes()) for array in found]


def assert_recorded(case: Path, rounds: int = ROUNDS) -> Run:
    """Every client's model in the run is what left it, and global what the strategy made, in the clients' types."""
    run, text = Run.open(case / "run"), case.name
    assert run.rounds == tuple(range(1, rounds + 1)), text
    before: Any = None
    for t in run.rounds:
        round_ = run.round(t)
        assert check_round(round_).faults == ()
        sent = {int(path.stem.partition("-")[2]): read(path) for path in (case / "sent").glob(f"{t}-*.npz")}
        # halves are read as float32
        own = {k: [np.asarray(array) for array in round_.client(k).arrays().values()] for k in round_.client_ids}
        types = [array.dtype for array in sent[0]]
        if "Client" in text and not text.startswith("old:") and t > 1:
            types[3] = np.dtype(np.int64)  # Flower's own mod turns the counter into a float
        recorded = {k: bits(model, types) for k, model in own.items()}
        expected = {k: bits(model, types) for k, model in sent.items()}
        if "unnumbered" in text:
            assert sorted(recorded.values()) == sorted(expected.values()), text
            assert sorted(recorded) == list(range(CLIENTS))
        else:
            assert recorded == expected, text
            counts = [10 * (k + 1) for k in sorted(sent)]
            assert round_.client_samples.tolist() == counts, text
        assert len(sent) == CLIENTS - ("failing" in text and t == 2)
        end = list(round_.read("global").arrays().values())
        if (made := case / "sent" / f"global-{t}.npz").exists():
            assert bits(end, types) == bits(read(made), types), text
        start = bits(round_.read("start").arrays().values())
        assert before is None or start == before, text
        before = bits(end)
    return run


@pytest.fixture(scope="module")
def played(flower: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """All strategies, within one process."""
    folder = tmp_path_factory.mktemp("here")
    return folder, json.loads(flower(APP, folder, *HERE, cwd=folder).splitlines()[-1])


@pytest.mark.parametrize("text", HERE)
def test_every_strategy_of_flower(text: str, played: tuple[Path, dict[str, Any]]) -> None:
    folder, told = played
    raising = "raising" in text
    run = assert_recorded(folder / text, ROUNDS - raising)
    assert told[text]["raised"] == ("RuntimeError: this strategy fails" if raising else "")
    name = text.removeprefix("old:").partition("+")[0]
    warned = [sentence for sentence in told[text]["warned"] if "statistics were not averaged" not in sentence]
    expected = []
    if name in PRIVATE or name.startswith("DPFedAvg"):
        expected.append(f"{name} clips models or adds noise to their mean")
    if "unnumbered" in text:
        expected.append(f"{folder}/{text}/run: clients are numbered in the order in which they reply")
    if "DifferentialPrivacyClient" in text and not text.startswith("old:"):
        expected.append(f"{folder}/{text}/run: client ")
    assert [sentence[: len(start)] for sentence, start in zip(warned, expected, strict=True)] == expected
    assert run.info["source"] == f"Flower ({name})"
    kinds = [entry.kind for entry in run.layout.entries]
    assert kinds == ["parameter", "parameter", "buffer", "buffer"]
    losses = [0.5 + k for k in range(CLIENTS)]
    if text == "FedAvg":
        mean = np.average(losses, weights=[10 * (k + 1) for k in range(CLIENTS)])
        assert run.round(1).metrics["train_loss"] == pytest.approx(mean)


@pytest.mark.parametrize("text", EVALUATING)
def test_what_flower_evaluates_is_in_the_run(text: str, played: tuple[Path, dict[str, Any]]) -> None:
    found = Run.open(played[0] / text / "run").metrics()
    np.testing.assert_allclose(found["test_loss"], [2.0 - t / 4 for t in range(1, ROUNDS + 1)])
    np.testing.assert_allclose(found["test_error"], [1 - t / 10 for t in range(1, ROUNDS + 1)])
    errors = [1 - (k + 1) / 10 for k in range(CLIENTS)]
    np.testing.assert_allclose(found["client_test_error_mean"], [np.mean(errors)] * ROUNDS)
    np.testing.assert_allclose(found["client_test_error_std"], [np.std(errors)] * ROUNDS)


def test_a_simulation_is_recorded_and_analysed(flower: Callable[..., str], tmp_path: Path) -> None:
    told = json.loads(flower(APP, "--simulation", tmp_path, *SIMULATED, cwd=tmp_path).splitlines()[-1])
    assert {text: one["raised"] for text, one in told.items()} == dict.fromkeys(SIMULATED, "")
    rules = {"FedAvg": "global is the weighted mean of the clients", "FedMedian": "global is the median of the clients"}
    for text in SIMULATED:
        assert_recorded(tmp_path / text)
        shutil.move(tmp_path / text / "run", tmp_path / "one")
        listed = asked(tmp_path, "ls", "one")
        name = text.removeprefix("old:").partition("+")[0]
        assert f"Flower ({name})" in listed
        assert ("test error    70.0 %" in listed) == ("evaluating" in text)
        assert rules.get(name, "no known server explains global") in listed
        assert "one, round 3: of 1,240 parameters over 6 clients" in asked(tmp_path, "disperse", "one")
        assert "one: mean cosine between updates" in asked(tmp_path, "updates", "one")
        shutil.rmtree(tmp_path / "one")


def test_the_page_runs_and_prints_what_it_shows(flower: Callable[..., str], tmp_path: Path) -> None:
    from test_docs import assert_shown, finish, steps_of

    seen = []
    for number, step in enumerate(steps_of(PAGE)):
        if step.language == "python":
            (tmp_path / f"app{number}.py").write_text(step.text, encoding="utf-8")
            flower(f"app{number}.py", cwd=tmp_path)
        elif re.search(r"\bfedscope ", step.text):
            output = finish(step, ["sh", "-c", step.text], tmp_path)
            if step.language == "console":
                assert_shown(step, output)
            else:
                assert [path for path in step.shown if not (tmp_path / path).exists()] == []
            seen.append(step.text.split()[1])
    assert seen[0] == "ls"
    assert len(seen) == 11
    assert Run.open(tmp_path / "runs/flower").round(5).client_ids.tolist() == list(range(8))


# --- an environment with nothing else ---


def wheel(folder: Path) -> Path:
    """fedscope, built from a copy of the checkout: a build writes beside the sources."""
    for name in ("core", "checkpoints", "landscape", "decomposition", "training", "cli"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    words = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder / "dist", folder]
    finished([sys.executable, "-P", *words], folder)
    return next((folder / "dist").glob("fedscope-*.whl"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of an environment in which just the page's two lines were run."""
    folder = tmp_path_factory.mktemp("bare")
    finished([sys.executable, "-m", "venv", folder / "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    lines = [line.split() for line in re.findall(r"^pip install .*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)]
    assert [words[-1] for words in lines] == ["lazy_loader", "fedscope"]
    pip = [python, "-m", "pip", "--disable-pip-version-check", *lines[0][1:], "-q", "--retries", "1"]
    done = subprocess.run(list(map(str, pip)), capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1][:200]}")
    (folder / "source").mkdir()
    finished([python, "-m", "pip", *lines[1][1:-1], "-q", wheel(folder / "source")], folder)
    yield python
    shutil.rmtree(folder)


def test_recording_needs_only_what_the_page_installs(bare: Path, tmp_path: Path) -> None:
    code = """
        import sys, numpy as np, fedscope
        assert "site-packages" in fedscope.__file__
        with fedscope.Recorder("run") as recorder:
            w = {"w": np.zeros(3, np.float32)}
            recorder.round(start=w, clients=[w, w], samples=[1, 2], global_=w)
        assert callable(fedscope.record) and callable(fedscope.partition_mod)
        from importlib.metadata import distributions
        print(*sorted(d.metadata["Name"].lower().replace("_", "-") for d in distributions()))
    """
    there = set(finished([bare, "-c", textwrap.dedent(code)], tmp_path).split())
    # `packaging` is what lazy_loader needs
    assert there - {"pip", "setuptools", "packaging"} == {"fedscope", "h5py", "lazy-loader", "numpy", "xxhash"}
    assert Run.open(tmp_path / "run").rounds == (1,)


def test_bfloat16_is_kept(bare: Path, tmp_path: Path) -> None:
    where = tmp_path / "more"
    pip = [bare, "-m", "pip", "install", "-q", "--no-deps", "--retries", "1", "--target", where, "ml_dtypes"]
    if subprocess.run(list(map(str, pip)), capture_output=True, timeout=600).returncode:
        pytest.skip("the package index cannot be reached for ml_dtypes")
    code = """
        import io, numpy as np, ml_dtypes, fedscope
        from types import SimpleNamespace as Given

        def array(values):  # as flwr.app.Array makes it
            file = io.BytesIO()
            np.save(file, values)
            return Given(data=file.getvalue(), dtype=str(values.dtype), stype="numpy.ndarray")

        class Strategy:
            def configure_train(self, server_round, arrays, config, grid): ...
            def aggregate_train(self, server_round, replies):
                return None, None

        def message(k):
            model, metrics = {"w": array(values[k])}, {"num-examples": 1}
            content = type("Content", (dict,), {})()
            content.array_records, content.metric_records = {"arrays": model}, {"metrics": metrics}
            return Given(has_content=lambda: True, content=content, metadata=Given(src_node_id=k))

        values = np.random.default_rng(0).normal(size=(3, 50)).astype(ml_dtypes.bfloat16)
        strategy = fedscope.record(Strategy(), "run")
        strategy.configure_train(1, {"w": array(values[2])}, None, None)
        strategy.aggregate_train(1, [message(0), message(1)])
        strategy.recorder.close()
        np.save("values.npy", values.astype(np.float32))
    """
    finished([bare, "-W", "ignore", "-c", textwrap.dedent(code)], tmp_path, {"PYTHONPATH": str(where)})
    run, values = Run.open(tmp_path / "run"), np.load(tmp_path / "values.npy")
    assert {entry["dtype"] for entry in run.info["layout"]} == {"bfloat16"}
    for k in range(2):
        assert run.round(1).client(k).arrays()["w"].tobytes() == values[k].tobytes()
    assert run.round(1).read("global").arrays()["w"].tobytes() == values[2].tobytes()


def test_nothing_is_lost_where_a_simulation_is_recorded_twice(flower: Callable[..., str], tmp_path: Path) -> None:
    flower(APP, tmp_path, "FedAvg", cwd=tmp_path)
    before = (tmp_path / "FedAvg/run/rounds/00001.h5").read_bytes()
    told = json.loads(flower(APP, tmp_path, "FedAvg", cwd=tmp_path).splitlines()[-1])
    assert told["FedAvg"]["raised"].startswith(f"{FedscopeError.__name__}: ")
    assert "holds a run with 3 rounds" in told["FedAvg"]["raised"]
    assert (tmp_path / "FedAvg/run/rounds/00001.h5").read_bytes() == before
