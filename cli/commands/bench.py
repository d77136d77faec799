"""``fedscope bench``."""

from __future__ import annotations

from pathlib import Path

import click

from ..option_types import Number
from ..printing import say_json, say_lines


@click.command("bench", epilog="Example:  fedscope bench    Another model:  fedscope bench --model mlp --seconds 1")
@click.option("--model", default="cnn", metavar="NAME", show_default=True, help="A model that takes 3x32x32 images.")
@click.option("--device", default="auto", metavar="DEVICE", show_default=True, help="cpu, cuda, mps, xpu, or auto.")
@click.option(
    "--folder", default=".", type=click.Path(path_type=Path), help="Folder on the disk to measure.  [default: here]"
)
@click.option("--seconds", type=Number(), default=3.0, show_default=True, help="Duration of each measurement.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(model: str, device: str, folder: Path, seconds: float, as_json: bool) -> None:
    """How fast this machine is: matrix products, training and evaluation of a model, and the disk, in half a minute.

    Training and evaluation are given as shares of the speed of matrix products, which they cannot exceed by much.
    Run nothing else at the same time.
    """
    from ...results import plain
    from ...training import bench

    measured = bench(model, device, folder=folder, seconds=seconds)
    if as_json:
        say_json(plain(measured.findings()))
        return
    say_lines(measured.summary())
