"""``fedscope export``."""

from __future__ import annotations

from pathlib import Path

import click

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import command_line
from ..option_types import HomePath, Words
from ..options import refuse_given
from ..printing import say, say_json

#: how files of surfaces end
SURFACES = (".h5", ".csv", ".dat")
TRACKERS = ("trackio", "wandb", "mlflow", "csv")


@click.command(
    "export",
    epilog="Example:  fedscope export runs/ima@last ima.safetensors    "
    "A surface:  fedscope export figures/plane.nc surface.h5    "
    "For pgfplots:  fedscope export figures/plane.nc surface.dat    "
    "A run's numbers:  fedscope export runs/ima --to csv ima-numbers.csv",
)
@click.argument("what", metavar="MODEL | PLANE.nc | RUN")
@click.argument("file", required=False, type=HomePath(), metavar="[FILE]")
@click.option(
    "--to",
    type=click.Choice(TRACKERS),
    help="Bring RUN's numbers and figures to this tracker; for csv, write its numbers as the table FILE.",
)
@click.option("--follow", is_flag=True, help="With --to: stay, and bring rounds as they come, until the run has all.")
@click.option(
    "--project",
    type=Words(),
    default="fedscope",
    show_default=True,
    metavar="NAME",
    help="With --to: the tracker's project; of mlflow the experiment.",
)
@click.option(
    "--name",
    type=Words(),
    metavar="NAME",
    help="With --to: what the tracker calls the run (default: its folder's name).",
)
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(
    what: str,
    file: Path | None,
    to: str | None,
    follow: bool,
    project: str,
    name: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a model for other programs, a plane's surface, or bring a run's numbers to a tracker.

    A model is RUN@ROUND[/WHICH] or a file, and FILE ends in .safetensors, .pt or .pth (a state_dict). A plane is a
    .nc that `fedscope plane` has written, and FILE ends in .h5 for tomgoldstein's loss-landscape; or in .csv or .dat, a
    line a point of the surface, for spreadsheets and for pgfplots.

    With --to, a run's metrics.csv and the PNG files of RUN/figures go to trackio, wandb or mlflow, each round once:
    the same command goes on where a killed one has ended. Nothing leaves this machine unless the tracker's own
    settings say so.
    """
    if to is not None:
        track(what, to, file, project, name, follow=follow, force=force, as_json=as_json)
        return
    refuse_given(("follow", "project", "name"), "is for what goes to a tracker; add --to, or leave it out")
    if file is None:
        raise FedscopeError(
            f"{what} is written as a file; name it, as in: {command_line('export', what, 'out.safetensors')}; or for a "
            "run's numbers name a tracker: --to csv, trackio, wandb or mlflow"
        )
    said = write(what, file, force=force)
    if as_json:
        say_json({"files": [str(file)]})
    else:
        say(said)


def track(
    what: str,
    to: str,
    file: Path | None,
    project: str,
    name: str | None,
    *,
    follow: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Bring a run's numbers and figures to a tracker, and say where they are."""
    from ...training.trackers.export import export_metrics
    from ..progress import progress

    if follow:
        say(f"fedscope: exporting {what} to {to} as rounds come; Ctrl-C ends this", err=True)
    with progress("rounds") as report:
        made = export_metrics(
            what, to, file=file, project=project, name=name, follow=follow, force=force, progress=report
        )
    if as_json:
        found = {"to": to, "where": made.where, "rounds": made.rounds, "figures": made.figures}
        say_json({**found, "files": [] if file is None else [str(file)]})
        return
    figures = f", {made.figures} figure{'s' if made.figures != 1 else ''}" if to != "csv" else ""
    look = f"; look at it: {made.looked_at}" if made.looked_at else ""
    say(f"{made.where}: {made.rounds} round{'s' if made.rounds != 1 else ''}{figures}{look}")


def write(what: str, file: Path, *, force: bool) -> str:
    """Write a model or a surface; returns the line that says it."""
    from numpy import isnan, mean

    from ...checkpoints import load_model, write_file
    from ...checkpoints.models.files import WRITTEN, is_file_name
    from ...checkpoints.models.unsaid_scale import unsaid_scale
    from ...checkpoints.runs.folders import refuse_own_place
    from ...landscape import Plane, write_points, write_surface
    from ...training.inputs.adapter_settings import settings_of_model

    surface, ending = Path(what).suffix == ".nc", file.suffix.lower()
    if surface == (ending in SURFACES) and (surface or ending in WRITTEN):
        refuse_own_place(file)  # which offers a name of the same ending
    if file.exists() and not force:
        raise FedscopeError(f"{file} exists; give another name, or --force to replace it")
    if not file.absolute().parent.is_dir():
        raise FedscopeError(f"{file.parent} is not a folder; make it, or give another name")
    if Path(what).is_file() and Path(what).suffix != ".nc" and not is_file_name(what):
        table = ", and a table already" if Path(what).suffix == ".csv" else ""
        raise FedscopeError(
            f"{what} is neither a model nor a plane{table}; give RUN@ROUND, a model's file or a plane's .nc"
        )
    if surface != (ending in SURFACES):
        goes = ".csv, .dat or .h5" if surface else ".safetensors, .pt or .pth"
        raise FedscopeError(f"{what} is {'a surface' if surface else 'a model'}, so {file} must end in {goes}")
    if surface:
        plane = Plane.load(what)
        (write_surface if ending == ".h5" else write_points)(file, plane)
        values = "loss" if isnan(plane.error).all() else f"loss and {'accuracy' if ending == '.h5' else 'error'}"
        guessed = 0.0 if plane.computed is None else 100 * float(mean(~plane.computed))
        share = f", {guessed:.0f} % of them interpolated" if guessed else ""
        return f"{file}: {len(plane.b)} x {len(plane.a)} points of {values}{share}"
    model = load_model(what)
    write_file(file, model.weights)
    if lacking := unsaid_scale(file, model.weights.layout, settings_of_model(model), file):
        say(f"fedscope: {lacking}", err=True)
    return f"{file}: {model.label}, {model.weights.layout.size:,} parameters"
