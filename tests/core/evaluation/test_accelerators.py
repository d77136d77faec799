"""The names of devices: what ``auto`` is, and what is refused."""

from __future__ import annotations

import pytest

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.evaluation.accelerators import resolve_device

pytestmark = pytest.mark.same_elsewhere


def test_the_environment_says_what_auto_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_DEVICE", "cpu")
    assert resolve_device("auto") == "cpu"
    monkeypatch.setenv("FEDSCOPE_DEVICE", "meta")
    assert resolve_device("cpu") == "cpu", "a device that is named is taken"
    sentence = r"^FEDSCOPE_DEVICE = 'meta' is not a device; use auto, cpu, cuda, mps, xpu, or one's number: cuda:1$"
    with pytest.raises(FedscopeError, match=sentence):
        resolve_device("auto")
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.train(rounds=1, out="nowhere")


def test_the_environment_may_say_auto_and_a_name_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_DEVICE", "auto")
    assert resolve_device("auto") in (resolve_device("cpu"), "cuda", "xpu", "pretend")
    with pytest.raises(FedscopeError, match=r"^device = 'gpu' is not a device"):
        resolve_device("gpu")
