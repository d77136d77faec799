"""Damaged files: whatever a file holds, a command ends with the right numbers or with one sentence.

``make campaign`` plays thousands of cases (``CASES=2000 SEED=7 make campaign``) and prints a table; the quick suite
plays two dozen. ``CASE=123,456 make campaign`` plays some again and says how they ended; ``GROUP=partition`` takes the
cases of one row of the table.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from campaign.judging import GOOD, Case, fingerprints, judge, numbers, table
from campaign.material import FILES, KEPT, OUT, PARTS, ROUNDS, TARGETS, Target, build, members, words_of
from campaign.spoiling import ways
from campaign.warm import Warm

from fedscope.cli.main import run

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere]

SECONDS = float(os.environ.get("SECONDS_EACH", "60"))
#: addresses that a command may map beyond what is mapped when it begins, and memory that it may fill beyond what it
#: fills with sound files, in bytes
ADDRESSES, MEMORY = 4 * 2**30, 250 * 2**20


#: how often each group is drawn
SHARES = (*[ROUNDS] * 6, *[PARTS] * 5, *[KEPT] * 2, *[FILES] * 6, *[OUT] * 3)
#: what nobody can tell: a whole file that is not there
UNSEEN = ("missing",)


#: cases of the quick suite, and commands that draw no figure
QUICK, PLAIN = 24, ("ls", "train", "export", "reaggregate")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs and files, and of the results one."""
    folder = tmp_path_factory.mktemp("few")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        build(folder, ["plane"])
    return folder


@pytest.fixture(scope="module")
def quick(few: Path) -> list[int]:
    """The seeds of the quick suite's cases."""
    seeds = (seed for seed in count() if drawn(few, seed, [OUT])[0].words[0] in PLAIN)
    return list(islice(seeds, QUICK))


@pytest.mark.parametrize("number", range(QUICK))
def test_a_damaged_file_is_fine_or_refused(
    few: Path,
    quick: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    """As below, in this process, but for what is altered and believed."""
    case, _, spoil = drawn(few, quick[number], [OUT])
    with copied(few, tmp_path / "case") as folder:
        spoil(folder)
        before = fingerprints(folder)
        monkeypatch.chdir(folder)
        capsys.readouterr()
        with alarm(30):
            status = run(list(case.words))
        (folder / "stderr").write_text(capsys.readouterr().err)
        outcome = judge(folder, {"late": False, "status": status, "peak": 0}, before, None, 0, is_resume(case))
        assert outcome in GOOD, f"{case}\n{(folder / 'stderr').read_text()}"
        monkeypatch.undo()


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """An error in what takes longer; elsewhere than on the main thread nothing is watched."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every case spoils a copy of."""
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        build(folder)
    return folder


def drawn(sound: Path, seed: int, without: Sequence[str] = ()) -> tuple[Case, Target, Callable[[Path], None]]:
    """The case of a seed, of a group that is not left out, and what spoils its file in a copy of the folder."""
    draw = np.random.default_rng([13, seed])
    shares = [group for group in SHARES if os.environ.get("GROUP", "") in group and group not in without]
    group = shares[int(draw.integers(len(shares)))]
    targets = [target for target in TARGETS if target.group == group]
    target = targets[int(draw.integers(len(targets)))]
    files = sorted(p for p in sound.glob(target.path) if p.suffix not in (".pdf", ".png", ".html", ".md"))
    path = files[int(draw.integers(len(files)))]
    spoil = ways(path)[int(draw.integers(len(ways(path))))]
    command = target.commands[int(draw.integers(len(target.commands)))]
    file = path.relative_to(sound).as_posix()
    case = Case(seed, target.group, file, spoil.__name__, tuple(words_of(command, members(sound))))
    return case, target, lambda folder: spoil(folder / file, draw)


def is_resume(case: Case) -> bool:
    return case.words[1:3] == ("--resume", "runs/half")


@pytest.mark.slow
def test_no_damaged_file_does_more_than_be_refused(sound: Path, tmp_path: Path) -> None:
    """Nothing altered is believed, nothing ends in a traceback, waits, fills the memory or changes a file beside it."""
    first, cases = int(os.environ.get("SEED", "0")), int(os.environ.get("CASES", "1500"))
    again = [int(seed) for seed in os.environ.get("CASE", "").split(",") if seed]
    seeds = again or range(first, first + cases)
    lanes: SimpleQueue[Warm] = SimpleQueue()
    kept: dict[tuple[str, ...], tuple[dict[str, Any], int]] = {}
    found: list[tuple[Case, str]] = []
    used: list[float] = []

    def played(folder: Path, case: Case) -> dict[str, Any]:
        warm = lanes.get()
        try:
            return warm.run(folder, list(case.words), SECONDS, ADDRESSES)
        finally:
            lanes.put(warm)

    def of_sound(case: Case) -> tuple[dict[str, Any], int]:
        """The numbers that a command computes from sound files, and its memory's peak."""
        if case.words not in kept:
            with copied(sound, tmp_path / f"sound-{case.seed}") as folder:
                before = fingerprints(folder)
                ended = played(folder, case)
                assert ended["status"] == 0, (case, (folder / "stderr").read_text())
                kept[case.words] = numbers(folder, before, is_resume(case)), ended["peak"]
        return kept[case.words]

    def one(seed: int) -> None:
        case, target, spoil = drawn(sound, seed)
        right, peak = of_sound(case)
        with copied(sound, tmp_path / str(seed)) as folder:
            spoil(folder)
            before = fingerprints(folder)
            ended = played(folder, case)
            known = right if target.recorded and case.how not in UNSEEN else None
            outcome = judge(folder, ended, before, known, peak + MEMORY, is_resume(case))
            found.append((case, outcome))
            used.append(ended["cpu"])
            if outcome not in GOOD or again:
                said = (folder / "stderr").read_text(errors="replace")
                print(f"{outcome}: {case}\n{said[-int(os.environ.get('TAIL', '600')) :]}", flush=True)

    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            lanes.put(stack.enter_context(Warm()))
        with ThreadPoolExecutor(lanes.qsize()) as pool:
            list(pool.map(one, seeds))
    print(f"\n{len(used)} cases, {sum(used):.0f} s of processor time, at most {max(used):.0f}")
    print(f"\n{table(sorted(found, key=lambda pair: pair[0].seed))}\n")
    assert not [str(case) for case, outcome in found if outcome not in GOOD]


@contextmanager
def copied(sound: Path, folder: Path) -> Iterator[Path]:
    """A copy of the sound folder, for a while."""
    shutil.copytree(sound, folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
