"""``fedscope demo``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..option_types import HomePath
from ..options import style_option
from ..printing import say

if TYPE_CHECKING:
    from ...training import Config

#: Fixed before any verdict on them was seen. All of early training, which has six rounds and needs five, and every
#: third round after it: evenly, because statements on what moves together compare every pair of rounds.
EXPLAINED = ",".join(["1-6", *map(str, range(9, 61, 3))])
#: Draws are runs that differ in their seed, not replays: those have no covariance by construction, and keep the start
#: that the seed made. Eight in all, as many as fit into the minute beside the rest, because each narrows intervals.
#: Their kind and number were chosen with verdicts in sight: eight replays decided 6 of 13 statements, five seeds 5.
SEEDS = (1, 2, 3, 4, 5, 6, 7)
#: of these runs the clients of the explained rounds are enough: two fifths of the time that writing takes, and the room
KEPT = f"record.clients=[{','.join(map(str, (*range(1, 7), *range(9, 61, 3))))}]"
#: every step is a command that the user could have given; {out} is the demo's folder
STEPS: tuple[tuple[str, ...], ...] = (
    ("train", "--method", "fma", "--out", "{out}/fma"),
    ("train", "--method", "ima", "--out", "{out}/ima"),
    ("curves", "{out}/fma", "{out}/ima", "--out", "{out}/curves"),
    ("line", "{out}/fma@last", "{out}/ima@last", "--out", "{out}/line"),
    ("plane", "{out}/ima", "--rounds", "1,20,last", "--grid", "41", "--width", "7in", "--out", "{out}/planes"),
    (
        "plane",
        "{out}/ima@-3/global",
        "{out}/ima@-2/global",
        "{out}/ima@last/global",
        "--show",
        "{out}/ima@last/averaged",
        "--out",
        "{out}/plane",
    ),
    ("decompose", "{out}/fma", "--rounds", "1,10,20,40,last", "--out", "{out}/decompose"),
    ("cka", "{out}/ima", "--rounds", "1,10,20,40,last", "--out", "{out}/cka"),
    *(
        ("train", "--method", "ima", "--seed", str(seed), "--set", KEPT, "--out", f"{{out}}/ima-{seed}")
        for seed in SEEDS
    ),
    (
        "explain",
        *("{out}/ima", *(f"{{out}}/ima-{seed}" for seed in SEEDS)),
        "--draws",
        "runs",
        "--rounds",
        EXPLAINED,
        "--label",
        f"IMA, {1 + len(SEEDS)} seeds",
        "--out",
        "{out}/explain",
    ),
)


@click.command("demo", epilog="Example:  fedscope demo --out demo")
@click.option("--out", type=HomePath(), default=Path("demo"), show_default=True, help="Folder to fill.")
@click.option("--force", is_flag=True, help="Replace an earlier demo.")
@style_option
def command(out: Path, force: bool) -> None:
    """Try everything on the embedded digits, in about a minute on a laptop: FMA and IMA, and every figure of them.

    Each command is printed before it runs. Start an interrupted demo again to continue it.
    """
    from ...checkpoints import FedscopeError

    if (out / "run.json").exists():
        raise FedscopeError(f"{out} is a run itself; give the demo a folder of its own with --out")
    steps = [[word.format(out=out) for word in step] for step in STEPS]
    for words in steps:
        if words[0] == "train":
            _refuse_others(words)
    for words in steps:
        if words[0] == "train" and not force:
            words = _what_is_left(words)
        if words:
            _do(words + (["--force"] if force else []))


def _refuse_others(words: Sequence[str]) -> None:
    """Refuse a run of the user's where one of the demo's would be.

    Raises:
        FedscopeError: names it.
    """
    from ...checkpoints import FedscopeError, Run
    from ...training import config_of

    path = Path(words[-1])
    if not (path / "run.json").exists():
        return
    run = Run.open(path)
    if run.config is None or _identity(config_of(run)) != _identity(_config_of(words)):
        raise FedscopeError(f"{path} is not the demo's run; give the demo a folder of its own with --out")


def _what_is_left(words: list[str]) -> list[str]:
    """The command that finishes a training; none for a finished one."""
    run = Path(words[-1])
    if not (run / "run.json").exists():
        return words
    if _is_unfinished(run):
        return ["train", "--resume", str(run)]
    say(f"{run} is trained already (--force trains it again)")
    return []


def _is_unfinished(path: Path) -> bool:
    from ...checkpoints import Run
    from ...training import config_of

    run = Run.open(path)
    return not run.rounds or run.rounds[-1] < config_of(run).run.rounds


def _config_of(words: Sequence[str]) -> Config:
    """Return what one of the demo's trainings is, of the words that it is given in."""
    from ...training import Config, merge, preset, read_assignments

    given = dict(zip(words[1::2], words[2::2], strict=True))
    seed = read_assignments([f"run.seed={given.get('--seed', 0)}"])
    return Config.read(merge(preset(given["--method"]), seed))


def _identity(config: Config) -> tuple[object, ...]:
    """Return what tells a run of the demo's from others of the user's."""
    from ...training.settings.registry import method_name

    methods = (method_name(method) for method in (config.client, config.server, config.average))
    return *methods, config.data.name, config.data.clients, config.run.rounds, config.run.seed


def _do(words: Sequence[str]) -> None:
    from ...checkpoints.io.shell_words import command_line
    from ..main import fedscope

    say("")
    say(f"$ {command_line(*words)}")
    fedscope.main(list(words), prog_name="fedscope", standalone_mode=False)
