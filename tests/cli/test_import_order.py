"""Lists of files in the order in which a shell sorts text: where that would be another answer, they are refused."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.recorder.file_order import other_order
from fedscope.cli.main import run

LAST = ["--server", "checkpoints", "--set", "server.last=3", "--set", "server.shape=uniform"]
COUNTS = [1000, *[10] * 10, 500]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Twelve files, each with its number as its only weights, as a shell gives them."""
    monkeypatch.chdir(tmp_path)
    Path("ep").mkdir()
    for k in range(12):
        torch.save({"w": torch.full((3,), float(k))}, f"ep/epoch_{k}.pt")
    return sorted(map(str, Path("ep").iterdir()))


def imported(files: Any, out: str = "run", **how: Any) -> tuple[Run, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = fedscope.import_models(files, out, **how)
    return made, [str(one.message) for one in caught]


def weights(made: Run) -> list[float]:
    round_ = made.round(1)
    return [float(round_.client(k).parameters[0]) for k in round_.client_ids]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def remedy(sentence: str) -> str:
    """The argument that a sentence gives in place of the files."""
    return shlex.split(sentence.partition("; give ")[2])[0]


@pytest.mark.parametrize(
    ("options", "who"),
    [
        (LAST, "--server checkpoints takes the last checkpoint as the newest, and "),
        (["--samples", ",".join(map(str, COUNTS))], "--samples goes by the order of the files, and "),
    ],
)
def test_an_order_that_matters_is_refused_and_the_remedy_works(
    files: list[str], options: list[str], who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "import", *files, *options, "--out", "run")
    assert said.startswith(f"fedscope: {who}ep/epoch_11.pt was given before ep/epoch_2.pt, as text is sorted; give ")
    assert not Path("run").exists()
    assert remedy(said) == "ep/epoch_*.pt"
    for out, given in (("pattern", remedy(said)), ("folder", "ep")):
        assert run(["import", given, *options, "--out", out]) == 0
        assert "order" not in capsys.readouterr().err
        assert weights(Run.open(out)) == list(range(12))
    made = Run.open("pattern").round(1)
    if options is LAST:
        assert made.read("global").parameters.tolist() == [10.0] * 3  # of 9, 10 and 11
    else:
        assert made.client_samples.tolist() == COUNTS


def test_counts_by_number_go_by_the_same_order(files: list[str]) -> None:
    """Files 1 to 12 are clients 0 to 11, which a mapping names."""
    Path("ep/epoch_0.pt").rename("ep/epoch_12.pt")
    given = sorted(map(str, Path("ep").iterdir()))
    with pytest.raises(FedscopeError, match=r"^samples goes by the order of the files, and ep/epoch_12\.pt was gi"):
        imported(given, samples=dict(enumerate(COUNTS)))


def test_sorted_in_python_is_the_same(files: list[str]) -> None:
    with pytest.raises(FedscopeError, match=r"^server='checkpoints' takes the last .* give 'ep/epoch_\*\.pt' \(in qu"):
        imported(files, server="checkpoints")
    with pytest.raises(FedscopeError, match=r"^samples goes by .*, and samples in that order, too$"):
        imported([Path(one) for one in files], samples=COUNTS)
    # a part of what a pattern would take
    with pytest.raises(FedscopeError, match="; give the files in the order of the numbers in their names, and samples"):
        imported(files[1:6], samples=[1, 2, 3, 4, 5])
    made, said = imported(sorted(files, key=lambda one: int(one[9:-3])), samples=COUNTS, server="checkpoints")
    assert weights(made) == list(range(12))
    assert not any("order" in one for one in said)


def test_numbers_alone_are_told(files: list[str]) -> None:
    made, said = imported(files)
    assert weights(made)[3] == 11
    assert said[0].startswith(
        "ep/epoch_11.pt is client 3, before ep/epoch_2.pt, because files are clients in the order"
    )
    assert remedy(said[0]) == "ep/epoch_*.pt"
    assert len(said) == 2  # and that global is the mean
    # with one count for all it is of no matter whose it is
    _, said = imported(files, "equal", samples=[5] * 12)
    assert said[0].startswith("ep/epoch_11.pt is client 3")


def test_what_a_run_was_imported_from_is_known_where_its_clients_are_checkpoints(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    imported(files, "shell")
    for words in (["wima", "shell@1", "--checkpoints"], ["reaggregate", "shell@1", *LAST]):
        said = refused(capsys, *words)
        assert (
            "of shell@1 takes the last checkpoint as the newest, and ep/epoch_11.pt was given before ep/epoch_2" in said
        )
        assert said.endswith(
            "; import them anew by their folder, or by a pattern in quotes, for the order of the numbers in their "
            "names\n"
        )
    imported("ep", "folder")
    imported("ep/epoch_{client}.pt", "pattern")
    for name in ("folder", "pattern"):
        assert "numbers in their names" not in refused(capsys, "wima", f"{name}@1", "--checkpoints")  # no --model
    # the mean does not ask which is the newest
    assert "numbers in" not in refused(capsys, "reaggregate", "shell@1", "--server", "checkpoints", *LAST[4:])


def test_an_order_by_hand_is_taken_and_told_where_it_is_time(files: list[str]) -> None:
    newest_first = [f"ep/epoch_{k}.pt" for k in range(11, -1, -1)]
    made, said = imported(newest_first, server="checkpoints", server_settings={"last": 1})
    assert made.round(1).read("global").parameters.tolist() == [0.0] * 3
    words = "takes the last checkpoint as the newest, and ep/epoch_11.pt was given before ep/epoch_10.pt, so it counts"
    assert [one for one in said if words in one]
    _, said = imported(newest_first, "counted", samples=COUNTS)
    assert not any("given" in one for one in said)


@pytest.mark.parametrize(
    "names",
    [
        ["a.pt", "b.pt", "c.pt"],
        ["best.pt", "epoch_1.pt", "epoch_2.pt", "last.pt"],
        ["step_008.pt", "step_009.pt", "step_010.pt"],
        ["lr0.01.pt", "lr0.05.pt", "lr0.1.pt", "lr0.5.pt"],
        ["model-12ab9.pt", "model-9f3c.pt"],  # sums, not numbers
        ["b_1.pt", "b_2.pt", "a_10.pt", "a_11.pt"],
        ["2024-09-30.pt", "2024-10-01.pt"],
        ["ppl10.24_epoch1.pt", "ppl9.81_epoch2.pt", "ppl9.87_epoch3.pt", "ppl9.9_epoch4.pt"],
        ["loss1.10.pt", "loss1.5.pt", "loss2.pt"],
    ],
)
def test_what_users_rightly_give_is_silent(names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for k, name in enumerate(names):
        torch.save({"w": torch.full((3,), float(k))}, name)
    made, said = imported(names, samples=list(range(1, len(names) + 1)), server="checkpoints")
    assert weights(made) == list(range(len(names)))
    assert said == ["global is what the server checkpoints makes of the clients"]


def test_names_with_several_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"epoch={k}-step={100 * k}.ckpt" for k in (10, 11, 8, 9)]
    found = other_order([Path("a.ckpt"), *map(Path, names), Path("z.ckpt")])
    assert found is not None
    assert (found.greater.name, found.less.name, found.as_text) == (names[1], names[2], True)
    for k, name in enumerate(names):
        Path(f"checkpoint-{name[6:8].strip('-')}").mkdir()
        np.savez(f"checkpoint-{name[6:8].strip('-')}/model.npz", w=np.float32([k]))
        np.savez(name.replace(".ckpt", ".npz"), w=np.float32([k]))
    given = [name.replace(".ckpt", ".npz") for name in names]
    with pytest.raises(FedscopeError, match=r"; give 'epoch=\*-step=\*\.npz' \(in quotes\) in place") as refusal:
        imported(given, server="checkpoints")
    assert weights(imported(remedy(str(refusal.value)), server="checkpoints")[0]) == [2, 3, 0, 1]
    with pytest.raises(FedscopeError, match=r"; give 'checkpoint-\*/model\.npz' \(in quotes\) in place"):
        imported(sorted(map(str, Path().glob("checkpoint-*"))), server="checkpoints")


def test_a_pattern_in_another_order_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads 9.9 before 9.81, so whoever followed the sentence had yet another order."""
    monkeypatch.chdir(tmp_path)
    names = ["ppl10.24.pt", "ppl9.81.pt", "ppl9.9.pt"]
    for k, name in enumerate(names):
        torch.save({"w": torch.full((3,), float(k))}, name)
    with pytest.raises(FedscopeError, match=r"; give the files in the order of the numbers in their names$"):
        imported(names, server="checkpoints")
    imported([*names[1:], names[0]], server="checkpoints")


def test_a_fraction_alone_is_no_order() -> None:
    assert other_order([Path("ppl10.1.pt"), Path("ppl9.2.pt"), Path("ppl9.3.pt")]) is not None
    assert other_order([Path("seed0_c1.pt"), Path("seed0_c10.pt"), Path("seed0_c2.pt")]) is not None
