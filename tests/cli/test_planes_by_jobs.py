"""A plane in blocks is the plane in one, bit for bit; what a block has measured stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, WriterLock
from fedscope.cli.main import run
from fedscope.evaluation.evaluator import Evaluator
from fedscope.landscape import Plane
from fedscope.results.resume import ResumeStore, stored_fingerprint, sum_of
from fedscope.training.jobs.blocks import PartBlock
from fedscope.training.jobs.launchers import Processes

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("here")]

THREE = ("runs/fma@1/client-0", "runs/fma@1/client-1", "runs/fma@2/client-2")
WORDS = ("plane", *THREE, "--grid", "7", "--data-of", "0,1")
JOBS = ("--launcher", "processes", "--job", "array_parallelism=2")
#: a plane on two clients' data
ENDS = (".client-0.nc", ".client-1.nc")


def blocks(count: int, *more: str, folder: str = "blocks") -> list[PartBlock]:
    """The blocks of the plane, measured by their commands, to which ``more`` may be added."""
    Path(folder).mkdir(exist_ok=True)
    made = [PartBlock(Path(folder).absolute(), 0, i, count) for i in range(count)]
    for block in made:
        assert run([*WORDS, *more, "--block", "0", str(block.index), str(count), folder]) == 0
        assert block.is_complete()
    return made


@pytest.mark.parametrize(("count", "grid"), [(2, 7), (5, 7), (16, 3)])
def test_the_points_of_all_blocks_are_those_of_the_plane(
    count: int, grid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 models and the points: each in one block, with the same numbers; some of sixteen blocks have none."""
    asked = ("--grid", str(grid))
    made = [ResumeStore(block.points, stored_fingerprint(block.points) or {}).done for block in blocks(count, *asked)]
    assert sorted(int(key) for done in made for key in done) == list(range(4 + grid**2))
    assert max(map(len, made)) - min(map(len, made)) <= 1
    assert min(map(len, made)) > 0 or count == 16
    assert run([*WORDS, *asked, "--out", "one"]) == 0
    whole = [Plane.load(f"one{end.removesuffix('.nc')}") for end in ENDS]
    for done in made:
        for key, (losses, errors) in done.items():
            if int(key) < 4:
                expected = [(plane.models[int(key)].loss, plane.models[int(key)].error) for plane in whole]
            else:
                at = np.unravel_index(int(key) - 4, (grid, grid))
                expected = [(plane.loss[at], plane.error[at]) for plane in whole]
            assert list(zip(losses, errors, strict=True)) == expected


def test_a_plane_by_jobs_is_the_plane_in_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*WORDS, "--out", "one"]) == 0
    measured = []
    whole = Evaluator.evaluate

    def watched(self: Evaluator, count: int, form: object, indices: object = None, spanning: object = None) -> object:
        measured.append(count)
        return whole(self, count, form, indices, spanning)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluator, "evaluate", watched)
    assert run([*WORDS, "--out", "jobs", *JOBS, "--blocks", "2"]) == 0
    assert measured == [], "this process has put blocks together"
    for end in ENDS:
        assert Path(f"jobs{end}").read_bytes() == Path(f"one{end}").read_bytes()
    assert not Path("jobs.jobs").exists()
    assert not list(Path().glob("jobs*partial*"))
    capsys.readouterr()
    monkeypatch.setenv("PATH", "")  # where no job could be sent
    assert run([*WORDS, "--out", "jobs", *JOBS, "--blocks", "2"]) == 0
    assert "already holds this result" in capsys.readouterr().err


def test_a_block_goes_on_with_what_it_has_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    (block, *_) = blocks(2)
    expected, head = block.points.read_bytes(), block.points.read_bytes().splitlines(keepends=True)
    block.points.write_bytes(b"".join(head[:9]) + head[9][:5])  # killed amid a line
    (block.points.parent / "complete.json").unlink()
    asked: list[int] = []
    whole = Evaluator.evaluate

    def watched(self: Evaluator, count: int, form: object, indices: object = None, spanning: object = None) -> object:
        asked.extend(indices)  # type: ignore[arg-type]
        return whole(self, count, form, indices, spanning)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluator, "evaluate", watched)
    assert run([*WORDS, "--block", "0", "0", "2", "blocks"]) == 0
    assert len(asked) == len(head) - 9
    assert block.points.read_bytes() == expected


def test_two_commands_never_measure_one_block(capsys: pytest.CaptureFixture[str]) -> None:
    (block, *_) = blocks(2)
    with WriterLock(block.points.parent):
        assert run([*WORDS, "--block", "0", "0", "2", "blocks"]) == 2
    assert "is being written by this program itself" in capsys.readouterr().err


def merged(monkeypatch: pytest.MonkeyPatch, capability: str | None = None, **other: object) -> list[Plane]:
    """The plane of two blocks, of which the first says another capability, or has another fingerprint."""
    (first, *_) = made = blocks(2)
    lines = first.points.read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), **other})
    point = json.loads(lines[-1])
    point["value"][0][0] = 123.0
    point["sum"] = sum_of(point["key"], point["value"])
    first.points.write_text("\n".join([*lines[:-1], json.dumps(point)]) + "\n")
    if capability is not None:
        (first.points.parent / "complete.json").write_text(json.dumps({"capability": capability}))
    monkeypatch.setattr("fedscope.training.jobs.blocks.Blocks.of", lambda self, question, base, part: made)
    assert run([*WORDS, "--out", "merged", *JOBS]) == 0
    return [Plane.load(f"merged{end.removesuffix('.nc')}") for end in ENDS]


def test_what_a_block_has_measured_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    planes = merged(monkeypatch)
    assert [np.count_nonzero(plane.loss == 123.0) for plane in planes] == [1, 0]
    assert "capabilities" not in planes[0].attrs


def test_a_block_of_another_processor_is_taken_over_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the module answers there may differ in its last bits."""
    planes = merged(monkeypatch, "QUBITS", outputs="0" * 64)
    assert [np.count_nonzero(plane.loss == 123.0) for plane in planes] == [1, 0]
    assert "QUBITS" in planes[0].attrs["capabilities"]
    assert len(planes[0].attrs["capabilities"]) == 2


@pytest.mark.parametrize("other", [{"outputs": "0" * 64}, {"batch": 7}])
def test_a_block_of_another_analysis_is_left_out(
    other: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planes = merged(monkeypatch, None if "outputs" in other else "QUBITS", **other)
    assert [np.count_nonzero(plane.loss == 123.0) for plane in planes] == [0, 0]
    assert "was measured with other settings, models or versions and is left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--adaptive", *JOBS],
            "--adaptive chooses each point by those before it, so that --launcher processes cann",
        ),
        (["--job", "qos=x"], "--job qos is about jobs, and --launcher local has none; give --launcher slurm"),
        (["--launcher", "processes", "--job", "qs=x"], '--job qs is not a setting of jobs; did you mean "qos"?'),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*WORDS, *words, "--out", "x"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fedscope: {sentence}")
    assert said.count("\n") == 1
    assert not list(Path().glob("x*"))


def test_a_block_that_always_fails_is_named_with_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is gone when the jobs begin."""
    from fedscope.training.jobs.blocks import Blocks

    ask = Blocks.measure

    def without(self: Blocks, *args: object) -> None:
        shutil.copytree("runs", "kept", symlinks=False)
        Path("runs").unlink()
        ask(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Blocks, "measure", without)
    assert run([*WORDS, "--out", "x", *JOBS, "--blocks", "1"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("fedscope: 1 of 1 blocks failed, 0-1-of-1 for one: ")
    assert "runs/fma" in said
    (log,) = Path("x.jobs").glob("*/0-1-of-1.log")
    assert f"the logs are in {log.parent.absolute()}" in said
    assert "runs/fma" in log.read_text()


@pytest.mark.parametrize("asked", [("runs/ima@last", "--clients"), ("runs/ima", "--rounds", "last")])
def test_jobs_measure_the_rounds_that_the_command_has_found(
    asked: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A round more is recorded before the jobs begin."""
    from fedscope.training.jobs.blocks import Blocks

    shutil.copytree("runs/fma", "kept")
    Path("runs").unlink()
    Path("runs").mkdir()
    late, table = Path("kept/rounds/00002.h5"), Path("kept/metrics.csv").read_text()
    shutil.copytree("kept", "runs/ima")
    Path("runs/ima/rounds/00002.h5").unlink()
    Path("runs/ima/metrics.csv").write_text("".join(table.splitlines(keepends=True)[:2]))
    words = ("plane", *asked, "--grid", "3")
    assert run([*words, "--out", "one"]) == 0
    measure, measured = Blocks.measure, []

    def grown(self: Blocks, *args: object) -> None:
        shutil.copy(late, "runs/ima/rounds/00002.h5")
        Path("runs/ima/metrics.csv").write_text(table)
        measure(self, *args)  # type: ignore[arg-type]
        monkeypatch.setattr(Evaluator, "evaluate", lambda *args: measured.append(args))

    monkeypatch.setattr(Blocks, "measure", grown)
    assert run([*words, "--out", "jobs", *JOBS, "--blocks", "1"]) == 0, capsys.readouterr().err
    assert measured == [], "what jobs have measured is taken"
    (made,), (whole,) = Path().glob("jobs*.nc"), Path().glob("one*.nc")
    assert made.read_bytes() == whole.read_bytes()


def test_a_name_that_schedulers_change_is_refused_before_anything_is_sent(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*WORDS, "--out", "50%adam", *JOBS]) == 2
    assert capsys.readouterr().err == (
        f"fedscope: {here}/50%adam.jobs has %a in its name, and submitit puts something else, as a job's number, in "
        "the place of that; write to a folder without it, or leave --launcher processes out\n"
    )
    sweep = ("sweep", "method=fma", "--set", "run.rounds=1", "--out", "a%j", "--launcher", "processes")
    assert run([*sweep]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"fedscope: {here}/a%j has %j in its name, and submitit puts something else, as a job's number, in the place "
        "of that; write to a folder without it, or leave --launcher processes out"
    )
    assert not list(Path().glob("*%*"))


def test_a_link_counts_as_it_is_handed_on(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep hands on the folder that a link leads to, a plane the link."""
    for link, folder in (("a%j", "clean"), ("link", "b%j")):
        Path(folder).mkdir()
        Path(link).symlink_to(folder)
    handed: list[Path] = []

    def send(self: Processes, jobs: object, batch: str, folder: Path, at_work: int) -> list[str]:
        handed.append(folder.absolute().parent)
        raise FedscopeError("enough")

    monkeypatch.setattr(Processes, "send", send)
    sweep = ("sweep", "method=fma", "--set", "run.rounds=1", "--launcher", "processes", "--out")
    for words, refused in (
        ((*sweep, "a%j"), ""),
        ((*sweep, "link"), f"{here}/b%j"),
        ((*WORDS, *JOBS, "--out", "a%j/plane"), f"{here}/a%j/plane.jobs"),
        ((*WORDS, *JOBS, "--out", "link/plane"), ""),
    ):
        capsys.readouterr()
        assert run([*words]) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith(f"fedscope: {refused} has %j in its name" if refused else "fedscope: enough"), said
    assert [folder for folder in handed if "%j" in f"{folder}"] == []
    assert len(handed) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--blocks", "2"),
            "--blocks 2 is about jobs, and --launcher local has none; give --launcher slurm or processes",
        ),
        (
            (*JOBS, "--engine", "ray:2"),
            "--launcher processes has jobs measure the points, and --engine ray:2 the workers",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*WORDS, "--out", "none", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(Path().glob("none*"))
