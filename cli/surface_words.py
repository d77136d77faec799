"""What `fedscope plane` says about a surface: a sentence for people, numbers for --json."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .results import precision_words

if TYPE_CHECKING:
    from ..landscape import Plane


#: what --json says of a plane, and of each of its models
ATTRS = (
    *("data", "split", "samples", "client", "points_held_out", "held_out_loss_error", "normalization_effect"),
    *("calibration_samples", "statistics_of", "held_out_loss_low", "held_out_loss_bands", "held_out_beyond"),
)
MODEL = ("label", "role", "loss", "error", "off_plane", "own_loss", "own_error")


def sentence(plane: Plane) -> str:
    """What the plane shows, with its numbers."""
    from ..landscape import basin_of

    basin = basin_of(plane)
    parts = [*_models_words(plane), *_axes_words(plane)]
    parts += [f"{m.label} {m.loss:.3g} and {100 * m.error:.1f} %, {m.off_plane:.2g} off the plane" for m in plane.shown]
    parts += [basin.sentence()] if basin is not None else []
    parts += _adaptive_words(plane) + _normalization_words(plane)
    return "; ".join(parts) + precision_words(plane.attrs)


def _models_words(plane: Plane) -> list[str]:
    """The losses of the models that the plane was made from."""
    mean, anchors = plane.mean, plane.anchors
    if mean is not None:
        best = min(anchors, key=lambda m: m.loss)
        who = "three" if plane.kind == "models" else f"{len(anchors)} clients"
        return [
            f"the mean has loss {mean.loss:.3g} and error {100 * mean.error:.1f} %, "
            f"the best of the {who} {best.loss:.3g} and {100 * best.error:.1f} %"
        ]
    if plane.path:
        first, last = plane.path[0], plane.path[-1]
        off = max(model.off_plane for model in plane.path)
        return [
            f"from {first.label} (loss {first.loss:.3g}, error {100 * first.error:.1f} %) to {last.label} "
            f"({last.loss:.3g}, {100 * last.error:.1f} %), up to {off:.2g} off the plane"
        ]
    return [f"{m.label} has loss {m.loss:.3g} and error {100 * m.error:.1f} %" for m in plane.models[:1]]


def _axes_words(plane: Plane) -> list[str]:
    shares = plane.attrs.get("explained")
    if not shares:
        return []
    return [f"the axes show {100 * shares[0]:.0f} and {100 * shares[1]:.0f} % of the models' squared distances"]


def _adaptive_words(plane: Plane) -> list[str]:
    if plane.computed is None:
        return []
    about = plane.attrs
    measured, points = int(about["points_computed"]), plane.loss.size
    if measured == points:
        return ["all points measured: too few to interpolate"]
    unknown = int(about["points_unknown"])
    off = [f"{100 * about['held_out_loss_error']:.2g} % of its range"]
    if "held_out_beyond" in about:  # files from before it was checked lack it
        off.append(f"{about['held_out_loss_bands']:.2g} bands of the colour scale")
        off.append(f"over the lowest tenth {100 * about['held_out_loss_low']:.2g} % of itself")
    aimed = about.get("held_out_beyond", about["held_out_loss_error"] / 0.005) <= 1
    return [
        f"{measured:,} of {points:,} points measured ({100 * measured / points:.0f} %), the others interpolated: at "
        f"{about['points_held_out']} points held out the loss is off by at most {', '.join(off)}"
        + ("" if aimed else " (more than the 0.5 %, 0.25 and 2 % aimed at: measure all points without --adaptive)")
        + ", and the error, interpolated linearly, by "
        + f"{100 * about['held_out_error_rms']:.2g} points (root mean square)"
        + (f"; {unknown:,} points beside losses that are not finite are not known" if unknown else "")
    ]


def _normalization_words(plane: Plane) -> list[str]:
    """Whose statistics the numbers are of, and those with each model's own, which are no points of the surface."""
    from ..landscape.paper import statistics_of

    words = statistics_of(plane.attrs, plane.normalization_policy)
    if not words:
        return []
    own = [replace(model, loss=model.own_loss, error=model.own_error) for model in plane.models]
    if all((one.loss, one.error) == (other.loss, other.error) for one, other in zip(own, plane.models, strict=True)):
        return [words]
    told = "; ".join(_models_words(replace(plane, models=tuple(own))))
    return [f"{words} (with the models' own statistics, {told})"]


def numbers(plane: Plane) -> dict[str, Any]:
    """The models' numbers, for --json."""
    from dataclasses import asdict

    from ..landscape import basin_of

    basin = basin_of(plane)
    about = {} if basin is None else {"basin": {**asdict(basin), "ringed": basin.ringed, "deviation": basin.deviation}}
    computed = plane.loss.size if plane.computed is None else int(plane.computed.sum())
    return {
        **about,
        **{key: plane.attrs[key] for key in ATTRS if key in plane.attrs},
        "normalization_policy": plane.normalization_policy,
        "kind": plane.kind,
        "models": [{key: getattr(model, key) for key in MODEL} for model in plane.models],
        "grid": [len(plane.b), len(plane.a)],
        "points_computed": computed,
        "points_interpolated": plane.loss.size - computed,
    }
