"""Sizes that a configuration or a run's file claims are counted before memory is taken."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import FedscopeError, Layout
from fedscope.cli.main import run
from fedscope.training import build_module, model_settings
from fedscope.training.build import without_numbers
from fedscope.training.local import resources as memory
from fedscope.training.settings.registry import find, names

resource = pytest.importorskip("resource")  # of Unix
GIB = 2**30


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A limit on what this process may take beside what it has: whoever takes more fails."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("Linux alone tells how much a process has")
    before = resource.getrlimit(resource.RLIMIT_AS)
    has = int(statm.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + 3 * GIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    return said[0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["model.hidden=[1000000000]"],
            r"would have 75,000,000,010 parameters, 300 GB in each of 3 copies or more",
        ),
        (["model.hidden=[100000,100000]"], r"would have 10,00\d,\d{3},\d{3} parameters, 40 GB in each"),
        (["model.hidden=[100000000000000000000]"], r"more than 18 digits"),
        (["model.name=cnn", "model.channels=10000000"], r"parameters, .* of memory are free; make its layers smaller"),
        (["model.name=cnn-gn", "model.hidden=[1000000000]"], r"parameters, .* of memory are free"),
    ],
)
def test_a_model_beyond_memory_is_refused_before_it_is_built(
    settings: list[str], sentence: str, little_memory: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    said = refused(capsys, "train", "--rounds", "1", *words, "--out", str(tmp_path / "t"))
    assert re.search(sentence, said), said
    assert not (tmp_path / "t").exists()


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "classes beyond memory": lambda info: info.update(classes=10**12),
    "classes that memory holds": lambda info: info.update(classes=2 * 10**7),
    "shape": lambda info: info["data"].update(shape=[1, 10**6, 10**6]),
    "beyond whole numbers": lambda info: info["data"].update(shape=[1, 10**12, 10**12]),
}


@pytest.mark.parametrize("what", [*FORGED, "hidden", "hidden beyond whole numbers"])
def test_a_run_that_claims_another_size_is_refused_without_memory(
    what: str,
    little_memory: None,
    two_rounds: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(two_rounds / "runs" / "fma", "w")
    info = json.loads(Path("w/run.json").read_text(encoding="utf-8"))
    info.pop("files")  # the seal: whoever forges can seal
    if what in FORGED:
        FORGED[what](info)
    else:
        claimed = 10**9 if what == "hidden" else 10**25
        config = Path("w/config.toml").read_text(encoding="utf-8")
        changed = re.sub(r"hidden = \[.*?\]", f"hidden = [{claimed}]", config, flags=re.DOTALL)
        assert changed != config
        Path("w/config.toml").write_text(changed, encoding="utf-8")
    Path("w/run.json").write_text(json.dumps(info), encoding="utf-8")
    for command in (
        ["plane", "w@1", "w@2", "w@2/client-0", "--grid", "3"],
        ["line", "w@1", "w@2", "--points", "3"],
        ["subsets", "w", "--rounds", "2", "--split", "test"],
        ["train", "--from", "w@1", "--out", "branch", "--rounds", "3"],
    ):
        said = refused(capsys, *command)
        assert re.search(
            r"w: (its model mlp is not the one this fedscope builds|model\.name = 'mlp' for)|more than 18 digits", said
        ), said
    assert not Path("branch").exists()


@pytest.mark.parametrize("name", sorted(names("models")))
def test_a_module_without_numbers_has_the_layout_of_the_one_that_is_built(name: str) -> None:
    """So that comparing it is comparing that one; torch's own random state stays."""
    kind = find("models", name)
    architecture, (shape, classes) = kind(), kind.counted
    state = torch.get_rng_state()
    empty = without_numbers(architecture, shape, classes)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(value.is_meta for value in empty.state_dict().values())
    if Layout.of(empty).size < 3_000_000:  # the others take a second each
        assert Layout.of(empty) == Layout.of(build_module(architecture, shape, classes))


def test_what_is_free_counts_the_process_own_limit(little_memory: None) -> None:
    free = memory.free_memory()
    assert free is not None
    assert free <= 3 * GIB


def test_a_model_that_memory_holds_is_built_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 4 * (64 * 8 + 8 + 8 * 10 + 10)
    settings = {"hidden": (8,)}
    architecture = type(model_settings("mlp"))(**settings)  # type: ignore[arg-type]
    monkeypatch.setattr(memory, "free_memory", lambda: 3 * needed)
    assert Layout.of(build_module(architecture, (1, 8, 8), 10)).size == needed // 4
    monkeypatch.setattr(memory, "free_memory", lambda: 3 * needed - 1)
    with pytest.raises(FedscopeError, match=r"would have 610 parameters, 2\.4 kB in each of 3 copies or more, but"):
        build_module(architecture, (1, 8, 8), 10)
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    assert build_module(architecture, (1, 8, 8), 10) is not None


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError("Unable to allocate 2.79 GiB for an array"), "fedscope: there is no memory left for this; give"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1440 b"),
            "fedscope: there is no memory left for this",
        ),
    ],
)
def test_memory_that_runs_out_is_one_sentence(
    error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("fedscope.checkpoints.Run.open", fails)
    assert run(["updates", "somewhere"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith(sentence)
    assert "\n" not in said


# --- numbers of a scale that float32 does not hold ---


def scaled(train: float, test: float, **more: np.ndarray) -> dict[str, np.ndarray]:
    rng, y = np.random.default_rng(0), np.arange(30) % 3
    x = {f"x_{split}": rng.normal(size=(30, 4)) * scale for split, scale in (("train", train), ("test", test))}
    return {**x, "y_train": y, "y_test": y, **more}


COLUMN = np.ones((30, 4), np.float32)
COLUMN[:, 1] = 1e-37 * (1 + 1e-6 * (np.arange(30) % 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (scaled(1e-42, 1.0), r"x_train has no value beyond .*e-42, and float32 loses digits below 1\.2e-38; give"),
        (scaled(1.0, 1e-42), r"x_test has no value beyond .*e-42, and float32 loses digits"),
        (scaled(1e-30, 1.0), r"x_test lies up to .*e\+30 standard deviations of x_train from its mean; give both"),
        (scaled(1e-25, 1.0), r"x_test lies up to .*e\+25 standard deviations of x_train from its mean; give both"),
        (scaled(1.0, 1.0, x_train=COLUMN), r"x_train has a feature that varies by .* alone, where float32 loses dig"),
    ],
)
def test_data_of_another_scale_are_refused(
    arrays: dict[str, np.ndarray], sentence: str, dtype: type, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    from fedscope.training import load_data

    with np.errstate(all="ignore"):
        kept = {name: value.astype(dtype) if name[0] == "x" else value for name, value in arrays.items()}
    np.savez(tmp_path / "d.npz", **kept)
    with pytest.raises(FedscopeError, match=sentence):
        load_data(f"npz:{tmp_path}/d.npz")
    assert not list(recwarn), "and NumPy says nothing of its own"


def test_test_samples_far_from_all_training_samples_are_said(tmp_path: Path) -> None:
    from fedscope.checkpoints import FedscopeWarning
    from fedscope.training import load_data

    np.savez(tmp_path / "d.npz", **scaled(1e-5, 1.0))
    with pytest.warns(FedscopeWarning, match=r"x_test lies up to .*e\+05 standard deviations .*; are both spl"):
        load_data(f"npz:{tmp_path}/d.npz")
