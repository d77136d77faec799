"""Sentences for Python: flags become the keywords of the function that was called; a command line sees flags."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.io import atomic
from fedscope.checkpoints.io.atomic import WriterLock
from fedscope.checkpoints.io.keywords import speak_keywords, speaking, with_keywords
from fedscope.cli.main import run
from fedscope.command_line import speaking_flags

KNOWN = {
    **{"draws": "local:4", "data": None, "model": None, "rounds": None, "clients": False, "servers": ()},
    **{"hessian": True, "standardise": None, "accept_data": None, "task": None, "global_": None, "data_of": None},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("give --draws none, the recorded models", "give draws='none', the recorded models"),
        ("give --data (and --model)", "give data= (and model=)"),
        ("--data-of 3 takes what, but --data names other data", "data_of=3 takes what, but data names other data"),
        ("--clients and --hessian are two", "clients=True and hessian=True are two"),
        ("leave out --no-hessian, or --round 2", "leave out hessian=False, or rounds=2"),
        ("take --server fedadam, fedyogi", "take servers='fedadam', fedyogi"),
        ("give --rounds from 6 on", "give rounds from 6 on"),
        ("(--rounds last)", "(rounds='last')"),
        ("give --data NAME", "give data=NAME"),
        ("give --task own:Huber(0.5); or none", "give task='own:Huber(0.5)'; or none"),
        ("--global 1e-3, --draws local:2: x", "global_=1e-3, draws='local:2': x"),
        ("--accept-data (accept_data=True) goes on", "accept_data=True goes on"),
        ("as they are (--no-standardise, standardise=False)", "as they are (standardise=False)"),
        ("give another --out, or --force to replace it", "give another --out, or --force to replace it"),
        ("by fedscope train --data d --model m; or --data x", "by fedscope train --data d --model m; or data='x'"),
        ("write --round 1 --round 2", "write rounds=[1, 2]"),
        ("--resume RUN --clients", "--resume RUN --clients"),
        ("give --model 'bob'\"'\"'s nets.py:Net(3)'; or none", """give model="bob's nets.py:Net(3)"; or none"""),
        ("it is the client's --model 'a b'", "it is the client's model='a b'"),
        ("by fedscope cka '/a (b), c; d' --model m", "by fedscope cka '/a (b), c; d' --model m"),
        ("a well--known dash -- and --x", "a well--known dash -- and --x"),
    ],
)  # fmt: skip
def test_flags_become_keywords(text: str, expected: str) -> None:
    assert with_keywords(text, KNOWN) == expected
    assert with_keywords(with_keywords(text, KNOWN), KNOWN) == expected
    assert with_keywords(text, {}) == text


@given(st.text(st.sampled_from("ab-= (),.;:'1") | st.characters(), max_size=60))
def test_a_text_without_a_flag_stays_as_it_is(text: str) -> None:
    assert "--" in text or with_keywords(text, KNOWN) == text


def test_errors_and_warnings_of_a_function_speak_its_keywords() -> None:
    class Kind(FedscopeError):
        pass

    @speak_keywords
    def ask(rounds: str = "", *, clients: bool = False) -> None:
        warnings.warn("--rounds 1 is old; not --draws none", FedscopeWarning, stacklevel=2)
        raise Kind("--clients goes with --rounds last, not with --draws none")

    with pytest.raises(Kind) as refused, pytest.warns(FedscopeWarning) as warned:
        ask()
    assert str(refused.value) == "clients=True goes with rounds='last', not with --draws none"
    assert str(warned[0].message) == "rounds=1 is old; not --draws none"
    with speaking_flags(), pytest.raises(Kind) as refused, pytest.warns(FedscopeWarning) as warned:
        ask()
    assert str(refused.value) == "--clients goes with --rounds last, not with --draws none"
    assert str(warned[0].message) == "--rounds 1 is old; not --draws none"
    with pytest.raises(FedscopeError, match=r"--rounds 1$"):  # what comes after it is as it was
        raise FedscopeError("give --rounds 1")
    with pytest.raises(ValueError, match="--rounds"), speaking({"rounds": None}):
        raise ValueError("--rounds 1 is no error of fedscope")


X = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
DATA = X, (X[:, 0] > 0).astype(np.int64)


@pytest.mark.parametrize(
    ("ask", "words", "in_python", "in_a_command"),
    [
        (
            lambda nets: fedscope.line(nets),
            ["line", "a.pt", "b.pt"],
            "does not say its data; give data= (and model=)",
            "give --data (and --model)",
        ),
        (
            lambda nets: fedscope.plane([*nets, nets[0]], data=DATA, grid=1),
            ["plane", "a.pt", "b.pt", "a.pt", "--grid", "1"],
            "grid=1 is not a whole number from 2 on",
            "'--grid': 1 is too small",
        ),
        (
            lambda nets: fedscope.sharpness(nets[0], data=DATA, split="tset"),
            ["sharpness", "a.pt", "--split", "tset"],
            "split='tset' is none of test, train; did you mean",
            "'tset' is not one of 'test', 'train'",
        ),
        (
            lambda nets: fedscope.cka(nets, data=DATA, rounds="last"),
            ["cka", "a.pt", "b.pt", "--rounds", "last"],
            "rounds='last' is for whole runs",
            "--rounds last is for whole runs",
        ),
        (
            lambda nets: fedscope.curves("none", target=80),
            ["curves", "none", "--target", "80"],
            "for 80 % give target=0.8",
            "for 80 % give --target 0.8",
        ),
        (
            lambda nets: fedscope.plane.prepare([*nets, nets[0]], data=DATA, clients=True, random=True),
            ["plane", "a.pt", "--clients", "--random"],
            "clients=True and random=True are two planes",
            "--clients and --random are two planes",
        ),
        (
            lambda nets: fedscope.plane([*nets, torch.nn.Linear(2, 2)], data=DATA, grid=3).figure(colour_scale="lin"),
            ["plane", "a.pt", "b.pt", "a.pt", "--colour-scale", "lin"],
            "colour_scale='lin' is no scale",
            "'lin' is not one of",
        ),
    ],
)
def test_functions_speak_in_keywords_and_commands_in_flags(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ask: object,
    words: list[str],
    in_python: str,
    in_a_command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    nets = [torch.nn.Linear(2, 2) for _ in range(2)]
    for name, net in zip("ab", nets, strict=True):
        torch.save(net.state_dict(), f"{name}.pt")
    assert callable(ask)
    with pytest.raises(FedscopeError) as refused:
        ask(nets)
    assert in_python in str(refused.value)
    assert run(words) == 2
    assert in_a_command in capsys.readouterr().err


def test_recorder_and_models_speak_keywords_and_commands_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of flags that have another name in Python, too: ``--out`` is ``path`` of a recorder."""
    with fedscope.Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[{"w": X[:1]}, {"w": X[1:2]}])
    with WriterLock(tmp_path / "run"), monkeypatch.context() as other:
        other.setattr(atomic, "_HELD", frozenset())  # as of another process
        with pytest.raises(FedscopeError, match=r"or give another path=$"):
            fedscope.Recorder(tmp_path / "run", resume=True)
    np.savez(tmp_path / "bare.npz", X, X[0])
    torch.save({"w": torch.ones(2)}, tmp_path / "odd.pt")
    with pytest.raises(FedscopeError, match=r"w unexpected; give the architecture that they are of \(model=\)$"):
        fedscope.line([str(tmp_path / "odd.pt")] * 2, model="mlp", data="digits")  # loads a model within a question
    with pytest.raises(FedscopeError, match=r"so the architecture is needed; give layout=$"):
        fedscope.load_model(str(tmp_path / "bare.npz"))
    with speaking_flags(), pytest.raises(FedscopeError, match=r"so the architecture is needed; give --model$"):
        fedscope.load_model(str(tmp_path / "bare.npz"))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            lambda: fedscope.line("a.pt", "b.pt"),
            r"^line\(\) takes 1 argument without a name, but 2 were given; give several",
        ),
        (lambda: fedscope.plane("a", "b", "c"), r"3 were given; give several models as a list, plane\(\[A, B\]\)$"),
        (lambda: fedscope.curves("a", "b"), r"give several runs as a list, curves\(\[A, B\]\)$"),
        (lambda: fedscope.table("a", "b"), r"give several runs as a list, table\(\[A, B\]\)$"),
        (
            lambda: fedscope.Recorder("a", "b", "c", "d"),
            r"^Recorder\(\) takes . arguments? without a name, but 4 were given; ",
        ),
    ],
)
def test_more_arguments_than_have_a_place_say_how_several_are_given(ask: Any, words: str) -> None:
    """As who types what the command line takes gives them."""
    with pytest.raises(TypeError, match=words):
        ask()
