"""``fedscope plane``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...analysis.settings import EvaluationConfig
from ...landscape.planes.drawing.color_scales import SurfaceColours
from ..option_types import Count, Number, PointShare, Share
from ..options import (
    Jobs,
    Output,
    align_option,
    launcher_options,
    measured_settings,
    normalization_option,
    output_options,
    pack_into,
    source_options,
    surface_options,
)

#: under which the words of a command are kept until it runs
WORDS = "fedscope.plane.words"


class _Plane(click.Command):
    """Keeps its words, which jobs are given too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click."""
        ctx.meta[WORDS] = ("plane", *args)
        return super().parse_args(ctx, args)


@click.command(
    "plane",
    cls=_Plane,
    epilog="Example:  fedscope plane runs/fma@58 runs/fma@59 runs/fma@60 --show runs/ima@60    "
    "A run alone:  fedscope plane runs/ima    "
    "Panels:  fedscope plane runs/ima --rounds 1,20,last    "
    "A round's clients:  fedscope plane runs/ima@20 --clients    "
    "Two methods:  fedscope plane runs/fma@60 runs/ima@60 --same-axes    "
    "On a cluster:  fedscope plane runs/ima --rounds 1,20,last --launcher slurm --blocks 16",
)
@click.argument("models", nargs=-1, required=True, metavar="A B C | RUN [RUN ...] | RUN@ROUND [RUN@ROUND ...]")
@click.option(
    "--show",
    multiple=True,
    metavar="MODEL",
    help="Project this model onto the plane too; repeatable. RUN@all/global gives one model per round.",
)
@click.option("--rounds", metavar="1,20,last", help="Rounds of a run, one panel each; with --trajectory, its rounds.")
@click.option("--clients", is_flag=True, help="The plane near all clients of RUN@ROUND: their principal components.")
@click.option("--trajectory", is_flag=True, help="The plane near the global models of RUN over its rounds.")
@click.option("--random", is_flag=True, help="Random filter-normalised directions from one model, drawn with --seed.")
@click.option(
    "--same-axes",
    is_flag=True,
    help="A plane for each RUN@ROUND, or with --random for each model, all along the same two directions and on one "
    "colour scale.",
)
@click.option(
    "--data-of",
    metavar="clients|3,8,11|all|every|own",
    help="Measure on these clients' own training data, one panel each; on all clients'; or on every one's and all.",
)
@click.option("--grid", type=Count(2), default=51, show_default=True, help="Grid points per side.")
@click.option(
    "--margin",
    type=Share(),
    default=0.3,
    show_default=True,
    help="Margin around the models, as a share of their extent.",
)
@click.option(
    "--range",
    type=Number(),
    nargs=4,
    metavar="A A B B",
    help="Ends of both axes, as L2 distances, instead of --margin.",
)
@click.option(
    "--adaptive",
    is_flag=True,
    help="Measure as many of a surface's points as tell the others, and interpolate these; prints the measured error.",
)
@click.option(
    "--budget",
    type=PointShare(),
    metavar="15%|0.15",
    help="With --adaptive: measure at most this share of the points; a larger one, or none, goes on from them.",
)
@normalization_option
@align_option
@source_options("test", files=True, both=True)
@launcher_options("measures one block of points")
@click.option(
    "--blocks",
    type=Count(1),
    default=8,
    show_default=True,
    help="With jobs: number of blocks that a surface is cut into.",
)
@click.option("--block", nargs=4, type=(int, int, int, click.Path(path_type=Path)), hidden=True)
@click.option("--up-to", nargs=2, type=(click.Path(path_type=Path), int), multiple=True, hidden=True)
@surface_options(panels=True)
@pack_into("colours", SurfaceColours)
@output_options
def command(
    models: tuple[str, ...],
    block: tuple[int, int, int, Path] | None,
    up_to: tuple[tuple[Path, int], ...],
    **settings: Any,
) -> None:
    """Losses on the plane through three models; their mean is the white cross.

    A model is RUN@ROUND[/WHICH] or a file: runs/ima@40, runs/ima@last/global, runs/ima@40/client-17, best.pt. Both axes
    are L2 distances. The models, and those of --show, are measured exactly, in addition to the grid.

    RUN alone is the plane near the clients of its last recorded round.

    --rounds shows three clients and their mean in each of these rounds, and the last three global models. --clients,
    --trajectory and --random draw planes near many models, or around one. --same-axes draws several rounds or models
    along one pair of directions, so that their surfaces can be compared.
    """
    from ...checkpoints.runs.run import same_rounds

    with same_rounds(dict(up_to)):  # of a run that is being trained jobs would find other ones than this command
        _draw(models, block=block, **settings)


def _draw(
    models: tuple[str, ...],
    source: EvaluationConfig,
    output: Output,
    jobs: Jobs,
    blocks: int,
    block: tuple[int, int, int, Path] | None,
    colours: SurfaceColours,
    scale: str,
    **settings: Any,
) -> None:
    """Answer the command, or measure a block of it."""
    from ...checkpoints import FedscopeError
    from ...landscape.planes.analysis import plane
    from ..run_analysis import answer, width_of

    question = plane.prepare(models, **settings, **measured_settings(source))  # --data-of has a split of its own
    if block is not None:  # in a job of its own
        from ...training.jobs.blocks import PartBlock

        PartBlock(block[3], *block[:3]).measure(question)
        return
    drawing = vars(colours)
    if len(question.ends) > 1:
        drawing = {**drawing, "scale": scale}
    elif scale != "figure":
        raise FedscopeError(f"--scale {scale} needs several planes, and this figure has one; leave it out")
    else:
        colours.refuse_unused(width_of(output))
    answer(question, output, _blocks(jobs, blocks, source, adaptive=settings["adaptive"]), **drawing)


def _blocks(jobs: Jobs, count: int, source: EvaluationConfig, *, adaptive: bool) -> Any:
    """Choose the jobs that measure surfaces; None where this process does."""
    from ...checkpoints import FedscopeError

    by = jobs.chosen()
    if by is None:
        if click.get_current_context().get_parameter_source("blocks") is click.core.ParameterSource.COMMANDLINE:
            raise FedscopeError(
                f"--blocks {count} is about jobs, and --launcher local has none; give --launcher slurm or processes"
            )
        return None
    if source.engine != "threads":
        raise FedscopeError(
            f"--launcher {jobs.launcher} has jobs measure the points, and --engine {source.engine} the workers of a "
            "cluster; leave one of the two out"
        )
    if adaptive:
        raise FedscopeError(
            f"--adaptive chooses each point by those before it, so that --launcher {jobs.launcher} cannot cut its "
            "surface into blocks; leave one of the two out"
        )
    from ...training.jobs.blocks import Blocks

    # jobs measure on the kind of device that puts the blocks together
    words = (*click.get_current_context().meta[WORDS], "--device", source.compute.name)
    return Blocks(by, count, words, Path.cwd())
