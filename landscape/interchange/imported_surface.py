"""Surfaces that other programs have computed."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from ...analysis.analysis import Prepared, Question, one, question, slug
from ...checkpoints import FedscopeError, npz_names, regular
from .. import Plane


@question
def imported(file: Path | str, *, split: str | None = None) -> Question[Plane]:
    """A surface that another program has computed, as a plane; points that were not computed (-1) become holes.

    Args:
        file: the ``.h5`` of tomgoldstein's loss-landscape, or the ``plane.npz`` of dnn-mode-connectivity.
        split: ``train`` or ``test``; the only one by default, of both ``test`` of an ``.h5`` and ``train`` of a
            ``plane.npz``.

    Raises:
        FedscopeError: no such file, or no such losses in it.
    """
    file = Path(file)

    def prepare() -> Prepared[Plane]:
        plane = _read(file, split)
        # the content, for a file that was moved holds the same surface
        content = regular(file, "a surface").read_bytes()
        settings = {"split": plane.attrs["split"], "file_sha256": sha256(content).hexdigest()}
        return settings, lambda attrs, work: replace(plane, attrs={**plane.attrs, **attrs})

    return one(Plane, Path("figures"), f"import-{slug(file.name)}", prepare)


def is_surface(file: Path | str) -> bool:
    """Whether a file is a surface rather than a model: an ``.h5``, or an ``.npz`` with a grid in it.

    >>> is_surface("surface.h5"), is_surface("model.safetensors")
    (True, False)
    """
    path = Path(file)
    match path.suffix.lower():
        case ".h5" | ".hdf5":
            return True
        case ".npz":
            return path.is_file() and "grid" in npz_names(path)
        case _:
            return False


def _read(file: Path, split: str | None) -> Plane:
    from .. import read_plane, read_surface

    match file.suffix.lower():
        case ".h5" | ".hdf5":
            return read_surface(file, split)
        case ".npz":
            return read_plane(file, split)
        case ".pt" | ".pth" | ".ckpt" | ".bin" | ".safetensors":
            raise FedscopeError(
                f"{file} is a model, which needs no import: give it to `fedscope plane` or `fedscope line` with "
                "--model and --data; of several models --out runs/NAME makes a run"
            )
        case ".nc":
            raise FedscopeError(f"{file} is a result already; the command that made it draws it again with --redraw")
        case _:
            raise FedscopeError(
                f"{file} is not a file that can be imported: the .h5 of loss-landscape, the plane.npz of "
                "dnn-mode-connectivity"
            )
