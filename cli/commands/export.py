"""``fedscope export``."""

from __future__ import annotations

from pathlib import Path

import click

from ..printing import say

#: how files of surfaces end
SURFACES = (".h5", ".csv", ".dat")


@click.command(
    "export",
    epilog="Example:  fedscope export runs/ima@last ima.safetensors    "
    "A surface:  fedscope export figures/plane.nc surface.h5    "
    "For pgfplots:  fedscope export figures/plane.nc surface.dat",
)
@click.argument("what", metavar="MODEL | PLANE.nc")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--force", is_flag=True, help="Replace FILE.")
def command(what: str, file: Path, force: bool) -> None:
    """Write a model for other programs, or a plane's surface: for tomgoldstein's loss-landscape, or as a table.

    A model is RUN@ROUND[/WHICH] or a file, and FILE ends in .safetensors, .pt or .pth (a state_dict). A plane is a
    .nc that `fedscope plane` has written, and FILE ends in .h5; or in .csv or .dat, a line a point of the surface, for
    spreadsheets and for pgfplots.
    """
    from numpy import isnan, mean

    from ...checkpoints import FedscopeError, load_model, write_file
    from ...landscape import Plane, write_points, write_surface

    if file.exists() and not force:
        raise FedscopeError(f"{file} exists; give another name, or --force to replace it")
    if not file.absolute().parent.is_dir():
        raise FedscopeError(f"{file.parent} is not a folder; make it, or give another name")
    surface, ending = Path(what).suffix == ".nc", file.suffix.lower()
    if surface != (ending in SURFACES):
        goes = ".csv, .dat or .h5" if surface else ".safetensors, .pt or .pth"
        raise FedscopeError(f"{what} is {'a surface' if surface else 'a model'}, so {file} must end in {goes}")
    if surface:
        plane = Plane.load(what)
        (write_surface if ending == ".h5" else write_points)(file, plane)
        values = "loss" if isnan(plane.error).all() else f"loss and {'accuracy' if ending == '.h5' else 'error'}"
        guessed = 0.0 if plane.computed is None else 100 * float(mean(~plane.computed))
        share = f", {guessed:.0f} % of them interpolated" if guessed else ""
        say(f"{file}: {len(plane.b)} x {len(plane.a)} points of {values}{share}")
        return
    model = load_model(what)
    write_file(file, model.weights)
    say(f"{file}: {model.label}, {model.weights.layout.size:,} parameters")
