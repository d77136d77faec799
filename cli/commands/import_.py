"""``fedscope import``."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Output, output_options


@click.command(
    "import",
    epilog="Example:  fedscope import surface.h5 --out figures/old    "
    "A plane of a curve:  fedscope import plane.npz --split test",
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--split",
    type=click.Choice(["train", "test"]),
    help="Which losses (default: the only ones; of both, test of an .h5 and train of a plane.npz).",
)
@output_options
def command(file: Path, split: str | None, output: Output) -> None:
    """Draw a surface that another program has computed, and keep it as a plane's .nc.

    FILE is the .h5 of tomgoldstein's loss-landscape, or the plane.npz of dnn-mode-connectivity. Points that were not
    computed (-1) become holes, hatched and counted. Models need no import: the other commands read .pt, .safetensors
    and Flower's .npz with --model and --data.
    """
    from ...checkpoints import FedscopeError
    from ...landscape import Plane
    from ...questions.imported import imported
    from ..answering import answer

    question = imported.prepare(file, split=split)
    target = Path(f"{output.out or question.folder / question.name}.nc")
    if output.redraw and target.exists() and Plane.load(target).span != "surface":
        raise FedscopeError(
            f"{target} holds no imported surface but a plane that fedscope has computed; draw it again with the "
            "command that made it, or give another --out"
        )
    answer(question, output)
