"""Files of another run, and rounds that are gone or there twice: none is believed, and each is named."""

from __future__ import annotations

import csv
import json
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from few import few

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.runs.info import seal
from fedscope.cli.main import run
from fedscope.training import branch, resume, train
from fedscope.training.config.config import Config, merge
from fedscope.training.loop.verify_run import check_run

ROUNDS = 6
WORDS = f"--method ima --rounds {ROUNDS} --clients 4 --participation 0.75 --epochs 1 --set run.evaluate_clients=20"
RUNS = {name: f"{WORDS} --set run.seed={seed}" for seed, name in enumerate(("ima", "sibling"))}
OTHERS = "is another run's table, or damaged: none of its"


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of two runs of one shape, ``ima`` and ``sibling``."""
    monkeypatch.chdir(tmp_path)
    for name in RUNS:
        shutil.copytree(trained / "runs" / name, name)
    return tmp_path


def older(path: str) -> None:
    """Make a run one of an earlier fedscope: no file says which run it is of."""
    for file in Path(path).glob("**/*.h5"):
        with h5py.File(file, "r+") as opened:
            opened.attrs.pop("identity", None)
            if "checksums" in opened:
                table = opened["checksums"][()]
                table = table[table["path"] != b"@identity"]
                del opened["checksums"]
                from fedscope.checkpoints.io.checksums import KIND, NAME, own_checksum

                opened.create_dataset(NAME, data=table).attrs[KIND] = np.uint64(own_checksum(table))
    info = json.loads(Path(path, "run.json").read_text())
    del info["identity"]
    Path(path, "run.json").write_text(json.dumps(seal(Path(path), info)))
    Path(path, "metrics.csv").unlink()
    from fedscope.checkpoints.rounds.metrics import write_table

    opened_run = Run.open(path)
    write_table(Path(path, "metrics.csv"), [(t, opened_run.round(t).metrics) for t in opened_run.rounds])


def copied(file: str) -> None:
    shutil.copy(f"sibling/{file}", f"ima/{file}")


def said(*words: str, capsys: Any, status: int = 0) -> str:
    capsys.readouterr()
    assert run([*words]) == status, capsys.readouterr().err
    return str(capsys.readouterr().err)


# --- what an identity is ---


def test_the_same_run_made_again_has_the_same_identity_and_a_sibling_another(here: Path, tmp_path: Path) -> None:
    own = Run.open("ima").identity
    config = Config.recorded(Run.open("ima").config or {})
    again = train(config, tmp_path / "again", until=1)
    assert again.identity == own
    for change in (
        {"run": {"seed": 2}},
        {"server": {"method": "fedadam"}},
        {"client": {"lr": 0.06}},
        {"data": {"seed": 1}},
    ):
        other = train(Config.read(merge(config.tables(), change)), tmp_path / f"{change}", until=1)
        assert other.identity != own, change
    assert len(own) == 32


def test_every_file_bears_it_and_a_resumed_run_keeps_it(here: Path, tmp_path: Path) -> None:
    tables = merge(Run.open("ima").config or {}, {"client": {"method": "scaffold"}, "record": {"clients": "sample:2"}})
    half = train(Config.read(tables), tmp_path / "half", until=2)
    files = [*(tmp_path / "half").glob("**/*.h5")]
    assert {file.parent.name for file in files} >= {"rounds", "half", "clients"}
    for file in files:
        with h5py.File(file) as opened:
            assert opened.attrs["identity"] == half.identity, file
    whole = resume(half.path)
    assert whole.identity == half.identity == train(Config.read(tables), tmp_path / "whole", until=1).identity
    assert check_run(whole.path).faults == ()


def test_a_run_that_was_moved_renamed_or_copied_is_sound(here: Path) -> None:
    Path("ima").rename("renamed")
    shutil.copytree("renamed", "elsewhere/copy")
    for path in ("renamed", "elsewhere/copy"):
        assert check_run(path).faults == ()
        assert Run.open(path).metrics()["round"].tolist() == list(range(1, ROUNDS + 1))


def test_a_branch_has_its_own_identity_and_says_whose_its_rounds_are(here: Path) -> None:
    source = Run.open("ima")
    one = branch(source, 3, {"server": {"method": "fedadam"}, "run": {"rounds": 5}}, "one")
    two = branch(one, 4, {"run": {"rounds": 6}}, "two")
    other = branch(source, 3, {"server": {"method": "fedyogi"}, "run": {"rounds": 5}}, "other")
    assert len({source.identity, one.identity, two.identity, other.identity}) == 4
    assert two.info["branch"]["identities"] == [[3, source.identity], [4, one.identity]]
    assert all(check_run(path).faults == () for path in ("one", "two", "other"))
    shutil.copy("other/rounds/00004.h5", "two/rounds/00004.h5")
    with pytest.raises(FedscopeError, match=f"00004.h5 is of another run: it says identity {other.identity[:12]}"):
        Run.open("two").round(4).read("global")
    Path("two/rounds/00003.h5").unlink()
    shutil.copy("other/rounds/00003.h5", "two/rounds/00003.h5")  # the history's, which both have
    assert Run.open("two").round(3).read("global").parameters.size


def test_a_branch_whose_history_was_not_all_there_goes_on(here: Path) -> None:
    branch(Run.open("ima"), 3, {"run": {"rounds": 5}}, "made")
    for t in (2, 3, 4, 5):
        Path(f"made/rounds/{t:05d}.h5").unlink()
    resume("made")
    assert check_run("made").faults == ()
    for t in (2, 3, 4, 5):
        Path(f"made/rounds/{t:05d}.h5").unlink()
    copied("rounds/00002.h5")
    with pytest.raises(FedscopeError, match=r"00002.h5 is of another run"):
        resume("made")


def recorded_run(path: str, seed: int, rounds: int = 4, **given: Any) -> None:
    draw = np.random.default_rng(seed)
    with fedscope.Recorder(path, **given) as recorder:
        for _ in range(rounds):
            clients = {k: {"w": draw.normal(size=3).astype(np.float32)} for k in range(3)}
            recorder.round(start={"w": np.zeros(3, np.float32)}, clients=clients, metrics={"test_error": draw.random()})


def test_recorded_and_imported_runs_have_one_that_resuming_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        recorded_run(name, 0)
    one, two = Run.open("one"), Run.open("two")
    assert one.identity != two.identity
    recorded_run("one", 1, resume=True)
    assert Run.open("one").identity == one.identity
    assert len(Run.open("one").rounds) == 8
    assert check_run("one").faults == ()
    shutil.copy("two/rounds/00003.h5", "one/rounds/00003.h5")
    with pytest.raises(FedscopeError, match=r"one/rounds/00003.h5 is of another run"):
        Run.open("one").round(3).clients()
    shutil.copy("two/metrics.csv", "one/metrics.csv")
    with pytest.warns(FedscopeWarning, match=OTHERS):
        assert Run.open("one").table_rows() == {}


# --- another run's table ---


@pytest.mark.parametrize("make", [lambda: None, lambda: (older("ima"), older("sibling"))])
def test_a_sibling_table_is_said_and_the_numbers_are_the_rounds(here: Path, make: Callable[[], Any]) -> None:
    make()
    expected = Run.open("ima").metrics()
    copied("metrics.csv")
    for read in (Run.metrics, Run.all_metrics):
        with pytest.warns(FedscopeWarning, match=f"ima/metrics.csv {OTHERS} {ROUNDS} rows was written for this run"):
            found = read(Run.open("ima"))
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    assert any(file == "metrics.csv" for file, _ in check_run("ima").faults)


@pytest.mark.parametrize(
    "words",
    few(
        [
            "curves ima",
            "table ima",
            "report ima",
            "explain ima --rounds 2,3 --draws none --split test",
            "cka ima --rounds 2",
        ],
        lambda words: words.startswith(("curves", "table")),
    ),
)
def test_every_command_that_reads_it_says_so(here: Path, capsys: Any, words: str) -> None:
    copied("metrics.csv")
    assert OTHERS in said(*words.split(), *(["--out", "m"] if words != "table ima" else []), capsys=capsys)


def test_a_check_finds_it_and_a_resume_mends_it(here: Path, capsys: Any) -> None:
    config = Config.recorded(Run.open("ima").config or {})
    half = train(config, "half", until=3)
    whole = (half.path / "metrics.csv").read_bytes()
    shutil.copy("sibling/metrics.csv", "half/metrics.csv")
    assert run(["ls", "--check", "half"]) == 2
    assert "metrics.csv: none of its rows was written for this run; delete it" in capsys.readouterr().out
    with pytest.warns(FedscopeWarning, match=OTHERS):
        resume("half", until=4)
    assert (half.path / "metrics.csv").read_bytes().startswith(whole)


def test_rows_of_a_sibling_among_its_own_are_none_of_a_run(here: Path) -> None:
    expected = Run.open("ima").metrics()
    own, other = ((Path(name) / "metrics.csv").read_text().splitlines(keepends=True) for name in ("ima", "sibling"))
    Path("ima/metrics.csv").write_text("".join([*own[:3], *other[3:5], *own[5:]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Run.open("ima").metrics()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    assert [what for file, what in check_run("ima").faults if "2 of its rows were not written for this run" in what]


# --- another run's round ---


@pytest.mark.parametrize(
    "words",
    few(
        [
            *("ls ima", "export ima@4 m.safetensors", "reaggregate ima@4 --server fedadam --limit 60", "updates ima"),
            *(
                "plane ima --trajectory --grid 3 --limit 60",
                "wima ima --windows 2 --limit 60",
                "disperse ima --rounds 4",
            ),
            *("train --from ima@5 --rounds 7", "decompose ima --rounds 4 --draws none --limit 60", "subsets ima@4"),
        ],
        lambda words: words.startswith(("ls", "plane", "reaggregate", "train")),
    ),
)
def test_a_sibling_round_is_refused_by_what_reads_it(here: Path, capsys: Any, words: str) -> None:
    copied("rounds/00004.h5")
    own, other = (Run.open(name).identity[:12] for name in ("ima", "sibling"))
    out = [] if words.startswith(("ls", "export")) else ["--out", "m"]
    sentence = said(*words.split(), *out, capsys=capsys, status=2)
    assert f"ima/rounds/00004.h5 is of another run: it says identity {other}, and of the run in this f" in sentence
    assert f"its own is {own} (run.json)" in sentence
    assert not list(Path().glob("m/run.json"))


def test_a_check_names_it_once(here: Path) -> None:
    copied("rounds/00004.h5")
    faults = check_run("ima").faults
    assert [file for file, _ in faults] == ["rounds/00004.h5"]
    assert "it is of another run" in faults[0][1]


def test_a_partition_of_a_sibling_is_refused_with_its_seal_made_right(here: Path) -> None:
    copied("partition.h5")
    Path("ima/run.json").write_text(json.dumps(seal(Path("ima"), json.loads(Path("ima/run.json").read_text()))))
    with pytest.raises(FedscopeError, match=r"ima/partition.h5 is of another run"):
        _ = Run.open("ima").partition


def test_a_round_of_a_run_with_identity_is_none_of_an_older_one_and_the_other_way_round_passes(here: Path) -> None:
    older("ima")
    copied("rounds/00004.h5")
    with pytest.raises(FedscopeError, match=r"and of the run in this folder it says none of its own \(run.json\)"):
        Run.open("ima").round(4).read("global")


@pytest.mark.parametrize("number", [3, 4])
def test_rounds_of_older_runs_are_told_by_their_start(here: Path, number: int) -> None:
    """Where a history goes into another run they are compared with the rounds before and behind."""
    older("ima")
    older("sibling")
    assert check_run("ima").faults == ()
    branch(Run.open("ima"), 5, {"run": {"rounds": 7}}, "fine")
    copied(f"rounds/{number:05d}.h5")
    with pytest.raises(FedscopeError, match=r"start is not the model that round \d left"):
        branch(Run.open("ima"), 5, {"run": {"rounds": 7}}, "made")
    assert not Path("made").exists()


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_file_that_says_no_run_is_none_of_a_run_whose_files_do(here: Path, capsys: Any, number: int) -> None:
    branch(Run.open("ima"), 5, {"run": {"rounds": 7}}, "fine")
    older("sibling")
    copied(f"rounds/{number:05d}.h5")
    none = (
        f"ima/rounds/{number:05d}.h5 is of another run: it says no identity, and of the run in this folder its own is"
    )
    with pytest.raises(FedscopeError, match=re.escape(none)):
        branch(Run.open("ima"), 5, {"run": {"rounds": 7}}, "made")
    assert not Path("made").exists()
    for words in (f"updates ima --rounds {number}", f"reaggregate ima@{number} --server fedadam --limit 60"):
        assert none in said(*words.split(), "--out", "m", capsys=capsys, status=2)


def test_a_kept_state_that_says_no_run_is_not_believed(tmp_path: Path, capsys: Any) -> None:
    words = ["train", "--client", "scaffold", "--clients", "4", "--epochs", "1", "--set", "record.clients=none"]
    words += ["--set", "model.hidden=[4]", "--rounds", "3", "--until", "2"]
    for name, seed in (("own", "0"), ("other", "3")):
        assert run([*words, "--seed", seed, "--out", str(tmp_path / name)]) == 0
    older(str(tmp_path / "other"))
    kept = "kept/clients/00002.h5"
    shutil.copy(tmp_path / "other" / kept, tmp_path / "own" / kept)
    assert f"{kept} is of another run: it says no identity" in said(
        "train", "--resume", str(tmp_path / "own"), capsys=capsys, status=2
    )
    assert any("no identity" in what for _, what in check_run(tmp_path / "own").faults)


# --- rounds that are gone, or there twice ---


def gone(*rounds: int) -> None:
    for t in rounds:
        Path(f"ima/rounds/{t:05d}.h5").unlink()


@pytest.mark.parametrize(
    "words",
    few(
        [
            *("curves ima", "table ima", "report ima", "updates ima", "disperse ima", "disperse ima --embed pca"),
            *("plane ima --trajectory --grid 3 --limit 60", "decompose ima --rounds all --draws none --limit 60"),
            *(
                "explain ima --draws none --split test",
                "subsets ima --rounds all --limit 60",
                "sharpness ima --no-hessian --draws 2",
            ),
        ],
        lambda words: words.startswith(("curves", "plane", "subsets")),
    ),
)
def test_what_is_said_of_all_rounds_names_those_that_are_gone(here: Path, capsys: Any, words: str) -> None:
    gone(2, 5)
    sentence = (
        "ima lacks rounds 2, 5, which were recorded; restore the files from a copy, for what follows is without them"
    )
    assert sentence in said(*words.split(), *([] if words == "table ima" else ["--out", "m"]), capsys=capsys)


def test_the_result_says_it_too(here: Path) -> None:
    gone(2)
    with pytest.warns(FedscopeWarning, match="ima lacks round 2, which was recorded"):
        found = fedscope.updates("ima")
    assert found.attrs["rounds_missing"] == {"ima": [2]}
    assert "rounds_missing" not in fedscope.updates("sibling").attrs


def test_a_single_round_needs_no_word(here: Path, capsys: Any) -> None:
    gone(2, 5)
    assert "lacks" not in said(
        "reaggregate", "ima@3", "--server", "fedadam", "--limit", "60", "--out", "m", capsys=capsys
    )


def test_curves_are_whole_with_the_rows_of_what_is_gone(here: Path) -> None:
    """Sums over rounds, too, are those of all rounds: the table has them."""
    column = "parameters_up_total"
    whole = fedscope.curves("ima").runs[0]
    gone(2, ROUNDS)
    with pytest.warns(FedscopeWarning, match=f"lacks rounds 2, {ROUNDS}"):
        found = fedscope.curves("ima").runs[0]
    assert found.round.tolist() == whole.round.tolist()
    np.testing.assert_array_equal(found.column(column), whole.column(column))
    Path("ima/metrics.csv").unlink()
    with pytest.warns(FedscopeWarning, match="lacks round 2"):
        found = fedscope.curves("ima").runs[0]
    assert np.isnan(found.column(column)).tolist() == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "wima ima --windows 2 --rounds 6 --limit 60",
            "the mean of the last 2 in round 6 needs the global model of round 5",
        ),
        ("train --from ima@6 --rounds 8", "ima lacks round 2; a branch needs all rounds up to 6"),
    ],
)
def test_what_would_be_wrong_without_them_is_refused(here: Path, capsys: Any, words: str, message: str) -> None:
    gone(2, 5)
    assert message in said(*words.split(), "--out", "m", capsys=capsys, status=2)


def test_the_last_rounds_are_known_by_the_table(here: Path) -> None:
    gone(5, 6)
    assert Run.open("ima").lacking == (5, 6)
    assert [file for file, _ in check_run("ima").faults] == ["rounds/00005.h5", "rounds/00006.h5"]


def test_rounds_that_were_never_recorded_are_no_gap(here: Path) -> None:
    """By the recording policy, or by another program that keeps some alone."""
    tables = merge(Run.open("ima").config or {}, {"record": {"clients": "every:3", "globals": "last:2"}})
    assert train(Config.read(tables), "few").lacking == ()
    older("ima")
    info = json.loads(Path("ima/run.json").read_text())
    Path("ima/run.json").write_text(json.dumps(seal(Path("ima"), {**info, "source": "another program"})))
    with Path("ima/metrics.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    Path("ima/metrics.csv").write_text("\n".join(",".join(row[:-1]) for row in rows) + "\n")  # it has no sums
    gone(1, 3, 5)
    assert Run.open("ima").lacking == ()


def test_a_resume_keeps_the_rows_of_rounds_that_are_gone(here: Path) -> None:
    config = Config.read(merge(Run.open("ima").config or {}, {"average": {"method": "none"}}))
    train(config, "half", until=4)
    before = Run.open("half").table_rows()
    Path("half/rounds/00001.h5").unlink()
    resume("half", until=5)
    after = Run.open("half").table_rows()
    assert list(after) == [1, 2, 3, 4, 5]
    assert {t: row["test_error"] for t, row in after.items() if t < 5} == {
        t: row["test_error"] for t, row in before.items()
    }


@pytest.mark.parametrize(
    "name",
    few(["0000000004.h5", "4.h5", "00000.h5", "٤.h5", "000007.h5"], lambda name: name in ("0000000004.h5", "٤.h5")),
)
@pytest.mark.parametrize(
    "words", ["curves ima", "ls ima", "ls --check ima", "export ima@3 m.safetensors", "train --resume ima"]
)
def test_a_file_that_is_called_as_no_round_is_refused_by_name(here: Path, capsys: Any, name: str, words: str) -> None:
    shutil.copy("ima/rounds/00004.h5", f"ima/rounds/{name}")
    capsys.readouterr()
    assert run(words.split()) == 2
    shown = capsys.readouterr()
    assert f"{name} is not what a run calls a round's file (00001.h5, 00002.h5, ...)" in shown.err + shown.out


def test_force_replaces_a_run_with_such_a_file(here: Path) -> None:
    shutil.copy("ima/rounds/00004.h5", "ima/rounds/4.h5")
    train(Config.read({"run": {"rounds": 1}, "data": {"clients": 3}}), "ima", force=True)
    assert Run.open("ima").rounds == (1,)


# --- a history that is not what was written ---


def swapped(file: Any) -> None:
    name = next(name for name in file["client_state/control"])
    rows = file["client_state/control"][name][()]
    file["client_state/control"][name][...] = rows[::-1]


def taller(file: Any) -> None:
    group, name = file["client_state/control"], next(iter(file["client_state/control"]))
    rows = group[name][()]
    del group[name]
    group[name] = np.concatenate([rows, rows], axis=1)


def unsummed(file: Any) -> None:
    del file["checksums"], file.attrs["checksums"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([swapped], "client_state/control/.* is not what was written"),
        ([taller], "client_state/control/.* is not what was written"),
        ([unsummed, taller], "client_state/control/.* has shape .* but run.json and the cohort say"),
        ([lambda file: file["clients"].move("fc1.weight", "x")], "it lacks clients/fc1.weight"),
        ([lambda file: file["weights"].__setitem__(0, 0.5)], "weights is not what was written"),
    ],
)
def test_no_damaged_round_goes_into_a_branch(
    recorded: Any, tmp_path: Path, changes: list[Callable[[Any], None]], message: str
) -> None:
    path = recorded(
        tmp_path / "scaffold", "--method", "scaffold", "--rounds", "4", "--clients", "4", "--participation", "1"
    )
    with h5py.File(path / "rounds/00002.h5", "r+") as file:
        for change in changes:
            change(file)
    with pytest.raises(FedscopeError, match=message):
        branch(Run.open(path), 4, {"run": {"rounds": 5}}, tmp_path / "made")
    assert not (tmp_path / "made").exists()
