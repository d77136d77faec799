"""``fedscope demo``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ..options import style_option
from ..printing import say

#: enough of them before and after early training ends that a rank correlation can be decided
EXPLAINED = "2-6,12,16,20,25,30,35,45"
#: every step is a command that the user could have given; {out} is the demo's folder
STEPS: tuple[tuple[str, ...], ...] = (
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
    ("explain", "{out}/ima", "--rounds", EXPLAINED, "--out", "{out}/explain"),
)


@click.command("demo", epilog="Example:  fedscope demo --out demo")
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="Folder to fill.")
@click.option("--force", is_flag=True, help="Replace an earlier demo.")
@style_option
def command(out: Path, force: bool) -> None:
    """Try everything on the embedded digits, in a few minutes on a laptop: FMA and IMA, and every figure of them.

    Each command is printed before it runs. Start an interrupted demo again to continue it.
    """
    from ...checkpoints import FedscopeError

    if (out / "run.json").exists():
        raise FedscopeError(f"{out} is a run itself; give the demo a folder of its own with --out")
    for method in ("fma", "ima"):
        run = out / method
        if force or not (run / "run.json").exists():
            _do(["train", "--method", method, "--out", str(run), *(["--force"] if force else [])])
        elif _is_unfinished(run):
            _do(["train", "--resume", str(run)])
        else:
            say(f"{run} is trained already (--force trains it again)")
    for step in STEPS:
        _do([word.format(out=out) for word in step] + (["--force"] if force else []))


def _is_unfinished(path: Path) -> bool:
    from ...checkpoints import Run
    from ...training import config_of

    run = Run.open(path)
    return not run.rounds or run.rounds[-1] < config_of(run).run.rounds


def _do(words: Sequence[str]) -> None:
    import shlex

    from ..main import fedscope

    say("")
    say(f"$ fedscope {shlex.join(words)}")
    fedscope.main(list(words), prog_name="fedscope", standalone_mode=False)
