"""Analyses that take a device: on an accelerator their numbers are a processor's, to rounding. The t-SNE of parameters
is none of them: there another package computes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu.questions import QUESTIONS, SAMPLES, TRAIN

from fedscope.cli.main import run

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def folder(few_digits: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four rounds, trained on the processor."""
    folder, before = tmp_path_factory.mktemp("device"), Path.cwd()
    os.chdir(folder)
    try:
        assert run([*TRAIN.split(), "--device", "cpu", "--out", "r"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_analysis_is_the_processors(
    name: str,
    folder: Path,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    alike: Callable[..., int],
    devices: Callable[[Path], set[str]],
) -> None:
    monkeypatch.chdir(folder)
    words, relative = QUESTIONS[name]
    for where, on in (("cpu", "cpu"), ("device", device)):
        assert run([*words.split(), "--device", on, "--out", f"{name}/{where}/x", "--force"]) == 0
        assert on in devices(folder / name / where)
    assert alike(folder / name / "cpu", folder / name / "device", relative, SAMPLES) > 0
