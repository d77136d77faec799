"""What a folder's network leaves out as padding: what a mask of the data says, and else its ``pad_token_id``."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
import fedscope.training
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.io.array_digest import digest
from fedscope.checkpoints.recorder.stored_data import coerce_data
from fedscope.cli.main import run as command
from fedscope.evaluation.standard_tasks import TASKS
from fedscope.training.data.custom import taken_data
from fedscope.training.data.recorded_splits import loaded_for
from fedscope.training.models import pretrained

pytestmark = pytest.mark.same_elsewhere

IDS = np.array([[3, 0, 5, 6], [7, 8, 0, 0], [1, 2, 3, 0]])
ONES, Y = np.ones_like(IDS), np.array([2, 0, 1])
SOME = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])


class Masked(nn.Module):
    """Classes of the mean of the tokens that a mask counts, of all without one, as transformers does it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        seen = self.embed(input_ids) * mask[..., None]
        return self.head(seen.sum(1) / mask.sum(1, keepdim=True))

    def loss(self, ids: np.ndarray, mask: np.ndarray) -> float:
        with torch.no_grad():
            return float(nn.functional.cross_entropy(self(*map(torch.from_numpy, (ids, mask))), torch.from_numpy(Y)))


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two folders whose network leaves out the token 0."""

    def build(*_: Any) -> nn.Module:
        made = Masked(0)
        made.register_forward_pre_hook(pretrained.LeaveOutPadding(0), with_kwargs=True)
        return made

    monkeypatch.setattr(pretrained.PretrainedFolder, "build", build)
    monkeypatch.setattr(pretrained, "task_of_folder", lambda *_: "sequence-classification")
    monkeypatch.chdir(tmp_path)
    for k in range(2):
        (tmp_path / f"net-{k}").mkdir()
        (tmp_path / f"net-{k}" / "config.json").write_text(json.dumps({"model_type": "x"}))
        torch.save(Masked(k).state_dict(), tmp_path / f"net-{k}" / "model.pt")
    return [f"net-{k}" for k in range(2)]


def asked(question: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        answer = question()
    return answer, [str(one.message) for one in told if issubclass(one.category, FedscopeWarning)]


@pytest.mark.parametrize("mask", [ONES, SOME], ids=["none", "some"])
def test_a_mask_says_what_is_padding(models: list[str], mask: np.ndarray) -> None:
    ids = IDS if mask is ONES else np.where(SOME == 1, np.where(IDS == 0, 4, IDS), 0)
    batch = {"input_ids": ids, "attention_mask": mask, "labels": Y}
    np.savez("texts.npz", **batch)
    expected = [Masked(k).loss(ids, mask) for k in (1, 0)]
    for data in (batch, "npz:texts.npz"):
        line, said = asked(lambda data=data: fedscope.line(models, data=data, points=3, range=(0, 1)))
        assert line.loss[0, [0, -1]] == pytest.approx(expected, rel=1e-6)
        assert not any("left out as padding" in one for one in said)


def test_the_padding_of_other_tokens_than_the_folder_says(models: list[str]) -> None:
    ids = np.where(SOME == 1, IDS, 4)  # 0 is a token as any other
    batch = {"input_ids": ids, "attention_mask": SOME, "labels": Y}
    line, _ = asked(lambda: fedscope.line(models, data=batch, points=3, range=(0, 1)))
    assert line.loss[0, [0, -1]] == pytest.approx([Masked(k).loss(ids, SOME) for k in (1, 0)], rel=1e-6)


def test_a_recorded_run_keeps_what_its_mask_said(models: list[str]) -> None:
    batch = {"input_ids": IDS, "attention_mask": ONES, "labels": Y}
    clients = {k: Masked(k) for k in range(2)}
    with fedscope.Recorder("run", data=batch) as recorder:
        recorder.round(start=Masked(0), clients=clients, global_=Masked(0))
    assert np.load("run/recorded-data.npz")["padding"].size == 0
    line, _ = asked(
        lambda: fedscope.line("run@1", clients=True, model=f"hf:{models[0]}", split="test", points=3, range=(0, 1))
    )
    assert sorted(line.loss[0, [0, -1]]) == pytest.approx(sorted(one.loss(IDS, ONES) for one in clients.values()))


@pytest.mark.parametrize("form", ["data set", "file"])
def test_data_that_were_read_before_keep_what_their_mask_said(models: list[str], form: str) -> None:
    """A recorder is handed them, and the file that a run keeps is data as any other."""
    np.savez("texts.npz", input_ids=IDS, attention_mask=ONES, labels=Y)
    data: Any = fedscope.training.load_data("npz:texts.npz", TASKS["sequence-classification"])
    clients = {k: Masked(k) for k in range(2)}
    with fedscope.Recorder("run", data=data) as recorder:
        recorder.round(start=Masked(0), clients=clients, global_=Masked(0))
    asked_of: dict[str, Any] = {} if form == "data set" else {"data": "npz:run/recorded-data.npz"}
    line, said = asked(
        lambda: fedscope.line(
            "run@1", clients=True, model=f"hf:{models[0]}", split="test", points=3, range=(0, 1), **asked_of
        )
    )
    assert sorted(line.loss[0, [0, -1]]) == pytest.approx(sorted(one.loss(IDS, ONES) for one in clients.values()))
    assert not any("left out as padding" in one for one in said)


def test_an_array_of_that_name_is_another_thing_s(tmp_path: Path) -> None:
    task = TASKS["sequence-classification"]
    for other in (SOME, np.array([2, 0, 1]), np.array([0.5])):
        np.savez(tmp_path / "texts.npz", x_test=IDS, y_test=Y, padding=other)
        (data, _) = asked(lambda: fedscope.training.load_data(f"npz:{tmp_path}/texts.npz", task))
        assert data.padding is None


def test_another_mask_makes_other_data() -> None:
    """Results of one are not taken for those of the other; samples without a mask are known as before."""
    task = TASKS["sequence-classification"]
    batch = {"input_ids": IDS, "labels": Y}
    ids = np.where(SOME == 1, np.where(IDS == 0, 4, IDS), 0)
    masks: list[dict[str, Any]] = [{}, {"attention_mask": ONES}, {"attention_mask": SOME, "input_ids": ids}]
    plain = [asked(lambda said=said: taken_data({**batch, **said}, task))[0] for said in masks]
    bare = asked(lambda: taken_data((ids, Y), task))[0]
    assert len({one.sha256 for one in (*plain, bare)}) == 4
    assert plain[0].sha256 == asked(lambda: taken_data((IDS, Y), task))[0].sha256
    assert plain[0].sha256 == digest({"x_test": IDS, "y_test": Y}, ("x_test", "y_test"))


def test_runs_of_before_know_masked_data_by_their_tokens(tmp_path: Path) -> None:
    """An earlier fedscope left the mask out of the sum, and a run is not refused its own data for that."""
    task = TASKS["sequence-classification"]
    batch = {"input_ids": IDS, "labels": Y, "attention_mask": ONES}
    before = digest({"x_test": IDS, "y_test": Y}, ("x_test", "y_test"))
    now = asked(lambda: taken_data(batch, task))[0].sha256
    assert now != before
    for said, expected in ((before, before), (now, now), ("another", now)):
        with loaded_for([{"sha256": said}]):
            assert asked(lambda: taken_data(batch, task))[0].sha256 == expected
    kept = asked(lambda: coerce_data(tmp_path, batch, None, keep=True))[0]
    assert kept.said["sha256"] == now
    assert kept.sums == (now, before)


def test_a_result_of_another_mask_is_of_other_data(models: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    question = ["line", *models, "--data", "npz:texts.npz", "--points", "3", "--out", "found"]
    np.savez("texts.npz", input_ids=IDS, labels=Y)
    assert command(question) == 0
    np.savez("texts.npz", input_ids=IDS, labels=Y, attention_mask=ONES)
    capsys.readouterr()
    assert command(question) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fedscope: found.nc holds another result, of data that have changed since; give another --out, or --force to "
        "replace it"
    )


def test_without_a_mask_the_folder_says_it(models: list[str]) -> None:
    line, said = asked(lambda: fedscope.line(models, data=(IDS, Y), points=3, range=(0, 1)))
    expected = [Masked(k).loss(IDS, (IDS != 0).astype(int)) for k in (1, 0)]
    assert line.loss[0, [0, -1]] == pytest.approx(expected, rel=1e-6)
    assert said[0] == (
        "arrays: the token 0 is left out as padding wherever it stands, because hf:net-0 says so (pad_token_id); give "
        "input_ids, attention_mask and labels where it is a token as any other"
    )
    _, said = asked(lambda: fedscope.line(models, data=(IDS + 1, Y), points=3, range=(0, 1)))
    assert not any("left out as padding" in one for one in said)


def test_padding_that_is_none_in_the_other_split_is_refused() -> None:
    train, test = ({"input_ids": IDS, "attention_mask": mask, "labels": Y} for mask in (ONES, SOME))
    test["input_ids"] = np.where(SOME == 1, np.where(IDS == 0, 4, IDS), 0)
    with pytest.raises(FedscopeError) as refusal:
        asked(lambda: taken_data((train, test)))
    assert str(refusal.value) == (
        "data: tuple gave padding of the tokens 0, which train data have as others or do not have as padding, and "
        "networks are called with tokens alone; fill both up with one token of its own"
    )
