"""``fedscope import``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import Output, output_options

if TYPE_CHECKING:
    from ..landscape import Plane


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
    from dataclasses import replace
    from hashlib import sha256

    from ..asking.names import slug
    from ..landscape import Plane
    from .results import PAGE, figures, kinds, obtain, say

    base = output.out or Path("figures", f"import-{slug(file.name)}")
    target = Path(f"{base}.nc")
    # drawing again needs the result alone
    read = _kept(target) if output.redraw and target.exists() else _read(file, split)
    settings = {"split": read.attrs["split"]}
    if not output.redraw:  # the content, for a file that was moved holds the same surface
        settings |= {"file_sha256": sha256(file.read_bytes()).hexdigest()}

    def imported(attrs: dict[str, Any], _: Path) -> Plane:
        return replace(read, attrs={**read.attrs, **attrs})

    plane = obtain(imported, Plane.load, lambda made: made.save(target), target, settings, output, kinds(base, *PAGE))
    drawn = figures(base, plane.figure(output.inches, output.title), plane.page(output.title))
    say(_sentence(plane), [target, *drawn], as_json=output.as_json, **_numbers(plane))


def _kept(target: Path) -> Plane:
    """The surface imported earlier."""
    from ..checkpoints import FedscopeError
    from ..landscape import Plane

    plane = Plane.load(target)
    if plane.kind != "surface":
        raise FedscopeError(
            f"{target} holds no imported surface but a plane that fedscope has computed; draw it again with the "
            "command that made it, or give another --out"
        )
    return plane


def _read(file: Path, split: str | None) -> Plane:
    from ..checkpoints import FedscopeError
    from ..landscape import read_plane, read_surface

    match file.suffix.lower():
        case ".h5" | ".hdf5":
            return read_surface(file, split)
        case ".npz":
            return read_plane(file, split)
        case ".pt" | ".pth" | ".ckpt" | ".bin" | ".safetensors":
            raise FedscopeError(
                f"{file} is a model, which needs no import: give it to `fedscope plane` or `fedscope line` with "
                "--model and --data"
            )
        case ".nc":
            raise FedscopeError(f"{file} is a result already; the command that made it draws it again with --redraw")
        case _:
            raise FedscopeError(
                f"{file} is none of the files that are imported: the .h5 of loss-landscape, the plane.npz of "
                "dnn-mode-connectivity"
            )


def _sentence(plane: Plane) -> str:
    """What was read."""
    import numpy as np

    about, finite = plane.attrs, plane.loss[np.isfinite(plane.loss)]
    spread = f", {finite.min():.3g} to {finite.max():.3g}" if finite.size else ""
    parts = [f"{about['split']} loss on {len(plane.b)} x {len(plane.a)} points{spread}"]
    if about["holes"]:
        parts.append(f"{about['holes']:,} points were not computed and are holes")
    if plane.computed is not None and not plane.computed.all():
        parts.append(f"{np.mean(~plane.computed):.0%} of them interpolated".replace("%", " %"))
    if np.isnan(plane.error).all():
        parts.append("it has no accuracies")
    if about.get("loss_is"):
        parts.append(f"the loss is its {about['loss_is']}")
    parts.append(f"coordinates are {'L2 distances' if about['units'] == 'L2 distance' else about['units']}")
    return f"{about['file']}, {about['program']}: " + "; ".join(parts)


def _numbers(plane: Plane) -> dict[str, Any]:
    """The same for --json."""
    about = plane.attrs
    grid = [len(plane.b), len(plane.a)]
    return {"grid": grid, **{key: about[key] for key in ("program", "split", "units", "holes")}}
