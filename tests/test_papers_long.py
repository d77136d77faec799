"""`make papers-long`: its plan, its pauses, and what becomes of numbers that are half-written or of another commit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedscope.results.arrays import read_netcdf, write_netcdf

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere]

LONG = Path(__file__).parents[1] / "docs" / "papers" / "long"
LOAD = "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/../make']; from pathlib import Path\n"


def said(code: str, *words: object) -> str:
    """What a piece of code prints that uses the driver's modules."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD + code, str(LONG), *map(str, words)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def driver(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LONG), "--quick", "--runs", str(home), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_units_have_one_name_each_and_ask_only_of_runs_that_they_train() -> None:
    code = (
        "from plan import *\n"
        "for scale in (Scale(), QUICK):\n"
        "    found = units(scale)\n"
        "    assert len({unit.name for unit in found}) == len(found)\n"
        "    for unit in found:\n"
        "        names = {run.name for run in unit.runs}\n"
        "        assert all(set(one.runs) <= names for one in unit.asked), unit.name\n"
        "        assert all(f'--seed {unit.place[-1]} --set data.seed={unit.place[-1]} ' in run.words\n"
        "                   for run in unit.runs if '--from' not in run.words), unit.name\n"
        "        for run in unit.runs:\n"
        "            words = run.words.split()\n"
        "            if '--from' in words:\n"
        "                base, _, at = words[words.index('--from') + 1].partition('@')\n"
        "                kept = next(one for one in unit.runs if one.name == base).words.partition('globals=[')[2]\n"
        "                kept = {int(round_) for round_ in kept.partition(']')[0].split(',')}\n"
        "                # the first average needs the globals before the branch\n"
        "                assert set(range(int(at) - 4, int(at) + 1)) <= kept, (unit.name, at)\n"
        "print('ok')\n"
    )
    assert said(code) == "ok"


def test_the_plan_is_what_cifar_10_names() -> None:
    code = (
        "from plan import *\n"
        "moved = [at_data(unit, 'npz:/data/c.npz') for unit in units(Scale())]\n"
        "print(all('npz:/data/c.npz' in run.words for unit in moved for run in unit.runs if '--from' not in run.words))"
    )
    assert said(code) == "True"


def test_a_pause_is_of_those_who_live_and_overlapping_ones_do_not_end_each_other(tmp_path: Path) -> None:
    code = (
        "import os; from pause import *; home = Path(sys.argv[2]); file = home / 'PAUSE'\n"
        "assert not paused(home)\n"
        "with pausing(home):\n"
        "    assert paused(home)\n"
        "    file.write_text(file.read_text() + f'{os.getppid()}\\n')  # another command begins meanwhile\n"
        "assert paused(home) and file.read_text() == f'{os.getppid()}\\n'\n"
        "file.write_text('4194304999\\n')\n"
        "assert not paused(home)  # of a command that was killed\n"
        "with pausing(home): pass\n"
        "assert not file.exists()\n"
        "file.touch()\n"
        "with pausing(home): assert paused(home)\n"
        "assert paused(home)  # by hand: it stays so\n"
        "print('ok')\n"
    )
    assert said(code, tmp_path) == "ok"


def test_without_long_runs_a_pause_writes_nothing_and_hands_the_status_on(tmp_path: Path) -> None:
    home = tmp_path / "none"
    done = subprocess.run(
        [sys.executable, str(LONG / "pause.py"), sys.executable, "-c", "raise SystemExit(3)"],
        env={**os.environ, "PAPERS_LONG": str(home)},
        check=False,
    )
    assert done.returncode == 3
    assert not home.exists()


def test_a_paused_command_stands_still_and_its_time_does_not_count(tmp_path: Path) -> None:
    code = (
        "import threading, time; import calls; from calls import Caller; home = Path(sys.argv[2]); calls.LOOK = 0.02\n"
        "ticks = home / 'ticks'; ticks.touch()\n"
        'work = \'import sys, time\\nfor _ in range(40):\\n open(sys.argv[1], "a").write("x"); time.sleep(0.02)\'\n'
        "call = Caller(home)\n"
        "def pause():\n"
        "    while not ticks.stat().st_size: time.sleep(0.01)\n"
        "    (home / 'PAUSE').touch(); time.sleep(0.3); first = ticks.stat().st_size\n"
        "    time.sleep(1.0); print(ticks.stat().st_size - first); (home / 'PAUSE').unlink()\n"
        "other = threading.Thread(target=pause); other.start(); begun = time.monotonic()\n"
        "call([sys.executable, '-c', work, ticks], home); whole = time.monotonic() - begun; other.join()\n"
        "assert ticks.stat().st_size == 40 and whole - call.active > 0.9, (whole, call.active)\n"
    )
    lines = said(code, tmp_path).splitlines()
    assert lines[-1] == "going on"
    assert "0" in lines, "nothing was written while it stood still"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are not given here")
def test_a_core_is_left_to_others_unless_all_are_asked_for(tmp_path: Path) -> None:
    code = (
        "from calls import Caller; from frozen import usable; home = Path(sys.argv[2]); import os\n"
        "work = 'import os; print(len(os.sched_getaffinity(0)))'\n"
        "for more in ({}, {'cores': usable()}):\n"
        "    Caller(home, **more)([sys.executable, '-c', work], home)\n"
    )
    own = len(os.sched_getaffinity(0))
    assert said(code, tmp_path).split() == [str(max(1, own - 1)), str(own)]
    assert "--all-cores" in driver(tmp_path, "--help").stdout


def test_a_command_gives_way_to_other_sessions_too(tmp_path: Path) -> None:
    code = (
        "from calls import Caller; home = Path(sys.argv[2])\n"
        "work = 'import os, pathlib; print(os.nice(0)); "
        'p = pathlib.Path("/proc/self/autogroup"); print(p.read_text() if p.exists() else "")\'\n'
        "Caller(home)([sys.executable, '-c', work], home)\n"
    )
    nice, group = (*said(code, tmp_path).splitlines(), "")[:2]
    assert nice == "19"
    assert not group or group.endswith("nice 19"), "Linux shares cores between sessions first"


def test_units_are_done_on_an_accelerator_and_their_numbers_stand_apart(tmp_path: Path) -> None:
    code = (
        "from plan import *; from frozen import *; import torch; from types import SimpleNamespace as N\n"
        "for unit in units(QUICK):\n"
        "    there = on_device(unit, 'cuda:1')\n"
        "    assert on_device(unit, 'cpu') is unit\n"
        "    assert all(run.words.endswith(' --device cuda:1') for run in there.runs)\n"
        "    for one in there.asked:\n"
        "        assert one.words.endswith(' --device cuda:1') is (one.words[:6] != 'curves'), one\n"
        "cpu = machine(), accelerator('cpu')\n"
        "torch.get_device_module = lambda kind: N(get_device_name=lambda k: f'NVIDIA {kind.upper()} {k}')\n"
        "print(*cpu, machine('cuda:1'), accelerator('cuda:1'), sep='|')\n"
    )
    own, none, there, name = said(code, tmp_path).split("|")
    assert (none, there, name) == ("", "cuda-NVIDIA-CUDA-1", "NVIDIA CUDA 1")
    assert "-" in own
    done = driver(tmp_path, "--device", "nosuch:0")
    assert done.returncode == 2
    assert re.fullmatch(
        r"make papers-long: torch \S+ sees no device nosuch:0 \(.*\); leave --device out\n", done.stderr
    ), done.stderr


def test_half_written_numbers_count_for_nothing_and_other_commits_stand_apart(tmp_path: Path) -> None:
    def unit(folder: str, name: str, commit: str, number: str, whole: bool = True) -> None:
        place = tmp_path / folder / commit / name
        place.mkdir(parents=True)
        (place / "fig1.csv").write_text(number)
        line = {"beta": (("beta",), np.array([0.0, 1.0]), {})}, {"loss": (("beta",), np.array([2.0, 0.1]), {})}
        write_netcdf(place / "fig1.nc", *line, {"data": f"npz:{tmp_path}/cifar10.npz", "run": {"seed": 3}})
        data = f"train --data npz:{tmp_path}/cifar10.npz"
        about = {"unit": name, "commit": commit, "data": "d", "machine": "m", "commands": [data]}
        text = json.dumps(about)
        (place / "unit.json").write_text(text if whole else text[:20])

    unit("finished", "a", "c1", "1")
    unit("finished", "b", "c1", "2")
    unit("finished", "a", "c2", "3")
    unit("finished", "c", "c1", "4", whole=False)
    unit("kept", "d", "c1", "5")
    (tmp_path / "kept" / "c1" / "d").rename(tmp_path / "kept" / "c1" / "d.partial")  # of a copy that was killed
    code = (
        "from units import *; home = Path(sys.argv[2])\n"
        "print([path.parent.name + path.name for path in keep(home / 'finished', home / 'kept')])\n"
        "print([(one.commit, sorted(of)) for one, of in groups(home / 'kept')])\n"
        "print(keep(home / 'finished', home / 'kept'))\n"
    )
    assert said(code, tmp_path).splitlines() == ["['c1a', 'c1b', 'c2a']", "[('c1', ['a', 'b']), ('c2', ['a'])]", "[]"]
    # no place of this machine is kept
    (kept,) = (tmp_path / "kept" / "c2").iterdir()
    assert json.loads((kept / "unit.json").read_text())["commands"] == ["train --data npz:cifar10.npz"]
    values, attrs = read_netcdf(kept / "fig1.nc")
    assert (attrs["data"], attrs["run"]) == ("npz:cifar10.npz", {"seed": 3})
    assert {name: one[1].tolist() for name, one in values.items()} == {"beta": [0.0, 1.0], "loss": [2.0, 0.1]}
    assert str(tmp_path).encode() not in (kept / "fig1.nc").read_bytes()
    (tmp_path / "finished" / "c1" / "a" / "fig1.csv").write_text("other")
    done = subprocess.run(
        [sys.executable, "-c", LOAD + code, str(LONG), str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert "keeps other numbers of the same commit, data and machine" in done.stderr


def test_the_list_tells_machines_and_commits_apart(tmp_path: Path) -> None:
    for identity, name in (("a", "device-0"), ("b", "silo-0")):
        place = tmp_path / "finished" / f"{identity * 10}-dddddddd-m" / name
        place.mkdir(parents=True)
        about = {"unit": name, "commit": identity * 40, "data": "d" * 64, "machine": "m"}
        (place / "unit.json").write_text(json.dumps(about))
    lines = driver(tmp_path, "--list").stdout.splitlines()
    heads = [i for i, text in enumerate(lines) if text.endswith(":")]
    assert [lines[i] for i in heads] == ["aaaaaaaaaa-dddddddd-m:", "bbbbbbbbbb-dddddddd-m:"]
    parts = lines[: heads[1]], lines[heads[1] :]
    assert [[text.split()[0] for text in own if " finished " in text] for own in parts] == [["device-0"], ["silo-0"]]


def test_what_a_full_disk_cut_off_is_worked_out_again(tmp_path: Path) -> None:
    import hashlib

    file = tmp_path / "data.npz"
    file.write_bytes(b"images")
    code = "from frozen import data_sum; print(data_sum(Path(sys.argv[2])))"
    sum_ = hashlib.sha256(b"images").hexdigest()
    kept = tmp_path / "data.npz.sha256"
    for text in (None, "", '{"file": "6', "[]", '{"file": null}'):
        if text is not None:
            kept.write_text(text)
        assert said(code, file) == sum_
        assert json.loads(kept.read_text())["sha256"] == sum_
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_missing_data_and_unknown_units_are_said(tmp_path: Path) -> None:
    words = [sys.executable, str(LONG), "--runs", str(tmp_path / "runs")]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "cifar10.npz is missing; put an .npz of CIFAR-10 there" in done.stderr
    done = driver(tmp_path / "runs", "device-9")
    assert "'device-9' is no unit; --list shows them" in done.stderr


def test_what_cannot_be_a_folder_or_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = driver(tmp_path / "file")
    assert (done.returncode, done.stderr) == (
        2,
        f"make papers-long: {tmp_path / 'file'} is a file; name a folder for the runs with --runs\n",
    )
    done = driver(tmp_path / "file" / "below")
    assert done.returncode == 2
    assert done.stderr == (
        f"make papers-long: {tmp_path / 'file' / 'below'}: Not a directory; free some room or the right to write "
        "there, or change --runs\n"
    )
    words = [sys.executable, str(LONG), "--runs", str(tmp_path / "runs"), "--data", str(tmp_path)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        f"make papers-long: {tmp_path} is a folder; name an .npz of CIFAR-10 with --data\n",
    )


#: a unit with a run and an answer, and its place
ONE = (
    "import units, frozen, shutil; from units import *; from plan import Unit; from work import Asked, Trained\n"
    "home = Path(sys.argv[2]); place = Place(home, ('x',), frozen.Identity('c' * 40, 'd' * 64, 'm'))\n"
    "unit = Unit('silo-0', 'silo-0', 's', (Trained('silo', 'w', 1),), (Asked('a', 'w', ('silo',)),), 1.0)\n"
    "folder = place.folder(unit); (folder / 'answers').mkdir(parents=True); (folder / 'silo').mkdir()\n"
    "(folder / 'silo' / 'metrics.csv').write_text('round,seconds\\n1,1\\n')\n"
    "(folder / 'answers' / 'a.csv').write_text('x')\n"
)


def test_of_two_drivers_one_does_a_unit_and_the_other_is_told(tmp_path: Path) -> None:
    code = ONE + (
        "import os\n"
        "with alone(unit, folder):\n"
        "    if not os.fork():\n"
        "        try: place.do(unit, None)\n"
        "        except SystemExit as error: print(error, flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "with alone(unit, folder): print('free')\n"
        "print(os.getpid())\n"
    )
    told, free, number = said(code, tmp_path).splitlines()
    assert told == (
        f"make papers-long: silo-0 is being done by process {number}; wait until it ends, stop it, or name other units"
    )
    assert free == "free"


def test_another_process_that_gathers_takes_no_file_of_this_one(tmp_path: Path) -> None:
    code = ONE + (
        "import os; real = shutil.copy; spent = {'active': 1.0, 'cpu': 1.0}; forked = []\n"
        "place.finished.mkdir(parents=True); (place.finished / 'silo-0.partial').mkdir()  # of an earlier version\n"
        "dead = os.fork() or os._exit(0); os.wait(); (place.finished / f'silo-0.partial-{dead}').mkdir()\n"
        "def copied(a, b):\n"
        "    made = real(a, b)\n"
        "    if not forked:\n"
        "        forked.append(os.fork())\n"
        "        if not forked[0]:\n"
        "            def stopped(*_): os._exit(0)\n"
        "            units.shutil.copy = stopped; place._gather(unit, folder, spent, 1)\n"
        "        os.wait()\n"
        "    return made\n"
        "units.shutil.copy = copied; place._gather(unit, folder, spent, 1)\n"
        "print(sorted(path.name for path in (place.finished / 'silo-0').iterdir()))\n"
        "units.shutil.copy = real; place._gather(unit, folder, spent, 1)\n"
        "print(sorted(path.name for path in place.finished.iterdir()))\n"
    )
    assert said(code, tmp_path).splitlines() == ["['a.csv', 'silo.metrics.csv', 'unit.json']", "['silo-0']"]


def test_a_full_disk_while_numbers_are_kept_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "finished" / "i" / "silo-0"
    place.mkdir(parents=True)
    about = {"unit": "silo-0", "commit": "c", "data": "d", "machine": "m"}
    (place / "unit.json").write_text(json.dumps(about))
    code = (
        "from units import *; import errno, units; home = Path(sys.argv[2])\n"
        "def full(a, b):\n"
        "    (Path(b)).mkdir(parents=True); raise shutil.Error([(str(a), str(b), 'No space left on device')])\n"
        "def bare(a, b): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "for one in (full, bare):\n"
        "    units.shutil.copytree = one\n"
        "    try: keep(home / 'finished', home / 'kept')\n"
        "    except SystemExit as error: print(error)\n"
        "print([str(path) for path in home.glob('kept/*/*')])\n"
    )
    words = (
        f"make papers-long: {tmp_path}/kept/i/silo-0 cannot be written (No space left on device); free some room, or "
        "the right to write there, then give --keep again"
    )
    assert said(code, tmp_path).splitlines() == [words, words, "[]"]


def test_units_of_another_plan_stand_apart_and_the_page_says_so(tmp_path: Path) -> None:
    def unit(name: str, words: str) -> None:
        place = tmp_path / "i" / name
        place.mkdir(parents=True)
        seed = name.rpartition("-")[2]
        command = f"fedscope train --data npz:/{seed}/c.npz --seed {seed} --set data.seed={seed} {words} --out silo"
        about = {"unit": name, "commit": "c", "data": "d", "machine": "m", "commands": [command]}
        (place / "unit.json").write_text(json.dumps(about))

    for name, words in (("silo-0", ""), ("silo-1", "--lr 0.1"), ("silo-2", ""), ("silo-decay-1", "")):
        unit(name, words)
    code = (
        "from units import *; import long_pages; kept = Path(sys.argv[2])\n"
        "parts = [of for _, of in groups(kept)]\n"
        "for of in parts: print(','.join(sorted(of)), long_pages._plans(of, parts), sep='|')\n"
    )
    assert said(code, tmp_path).splitlines() == [
        "silo-0,silo-2,silo-decay-1| Apart from them, because their commands differ in more than the seed: silo-1.",
        "silo-1| Their commands differ from those of the other units in more than the seed, as in `fedscope train "
        "--data c.npz --seed … --set data.seed=… --lr 0.1 --out silo`.",
    ]


@pytest.mark.slow
def test_a_killed_unit_goes_on_and_its_numbers_are_those_of_an_undisturbed_one(tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    assert driver(whole, "device-0", "device-0-ima").returncode == 0
    command = [sys.executable, str(LONG), "--quick", "--runs", str(torn), "device-0", "device-0-ima"]
    for number in (signal.SIGKILL, signal.SIGTERM):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        place = torn / "units"
        end = time.monotonic() + 120
        while not list(place.glob("*/device-0/device/rounds/0000[3-9].h5")) and time.monotonic() < end:
            time.sleep(0.05)
        child.send_signal(number)
        child.wait()
        time.sleep(0.5)  # the command that it ran ends with it
    assert driver(torn, "device-0", "device-0-ima").returncode == 0
    for name in ("device-0", "device-0-ima"):
        (one,), (other,) = (list((home / "finished").glob(f"*/{name}")) for home in (whole, torn))
        numbers = [{path.name: path.read_bytes() for path in place.glob("*.nc")} for place in (one, other)]
        assert numbers[0].keys() == numbers[1].keys() != set()
        from fedscope import Line, Plane

        for file in numbers[0]:
            kind = Plane if file.startswith("fig1") else Line
            a, b = (kind.load(place / file) for place in (one, other))
            assert (a.loss == b.loss).all(), file
