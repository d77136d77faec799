"""What `fedscope plane` says about a surface: a sentence for people, numbers for --json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .results import precision_words

if TYPE_CHECKING:
    from ..landscape import Plane


def sentence(plane: Plane) -> str:
    """What the plane shows, with its numbers."""
    from ..landscape import basin_of

    basin = basin_of(plane)
    parts = _own_words(plane)
    parts += [f"{m.label} {m.loss:.3g} and {100 * m.error:.1f} %, {m.off_plane:.2g} off the plane" for m in plane.shown]
    parts += [basin.sentence()] if basin is not None else []
    parts += _adaptive_words(plane) + _normalization_words(plane)
    return "; ".join(parts) + precision_words(plane.attrs)


def _own_words(plane: Plane) -> list[str]:
    mean, anchors = plane.mean, plane.anchors
    if mean is not None:
        best = min(anchors, key=lambda m: m.loss)
        who = "three" if plane.kind == "models" else f"{len(anchors)} clients"
        words = [
            f"the mean has loss {mean.loss:.3g} and error {100 * mean.error:.1f} %, "
            f"the best of the {who} {best.loss:.3g} and {100 * best.error:.1f} %"
        ]
    elif plane.path:
        first, last = plane.path[0], plane.path[-1]
        off = max(model.off_plane for model in plane.path)
        words = [
            f"from {first.label} (loss {first.loss:.3g}, error {100 * first.error:.1f} %) to {last.label} "
            f"({last.loss:.3g}, {100 * last.error:.1f} %), up to {off:.2g} off the plane"
        ]
    else:
        words = [f"{m.label} has loss {m.loss:.3g} and error {100 * m.error:.1f} %" for m in plane.models[:1]]
    shares = plane.attrs.get("explained")
    if shares:
        words.append(
            f"the axes show {100 * shares[0]:.0f} and {100 * shares[1]:.0f} % of the models' squared distances"
        )
    return words


def _adaptive_words(plane: Plane) -> list[str]:
    if plane.computed is None:
        return []
    about = plane.attrs
    measured, points = int(about["points_computed"]), plane.loss.size
    if measured == points:
        return ["all points measured: too few to interpolate"]
    unknown, relative = int(about["points_unknown"]), float(about["held_out_loss_relative"])
    return [
        f"{measured:,} of {points:,} points measured ({100 * measured / points:.0f} %), the others interpolated: at "
        f"{about['points_held_out']} points held out the loss is off by at most "
        f"{100 * about['held_out_loss_error']:.2g} % of its range"
        + (", more than the 0.5 % aimed at," if about["held_out_loss_error"] > 0.005 else "")
        + f" and the error, interpolated linearly, by {100 * about['held_out_error_rms']:.2g} points (root mean square)"
        + (f"; near the minimum that is up to {100 * relative:.2g} % of the loss itself" if relative > 0.05 else "")
        + (f"; {unknown:,} points beside losses that are not finite are not known" if unknown else "")
    ]


def _normalization_words(plane: Plane) -> list[str]:
    policy, change = plane.normalization_policy, plane.attrs.get("normalization_effect")
    if not change:
        return []
    if plane.kind != "models" and policy == "keep":
        return [f"all points have the normalization statistics of {plane.attrs['origin']}"]
    how = {"keep": "the first model's normalization statistics", "re-estimate": "re-estimated normalization statistics"}
    least, most = min(change), max(change)
    what = f"by {least:+.2g} to {most:+.2g}" if len(change) > 1 else f"by {least:+.2g}"
    who = "the models on the plane" if plane.kind == "models" else str(plane.attrs["origin"])
    return [f"{how[policy]} change the loss of {who} {what}"]


def numbers(plane: Plane) -> dict[str, Any]:
    """The models' numbers, for --json."""
    from dataclasses import asdict

    from ..landscape import basin_of

    basin = basin_of(plane)
    about = {} if basin is None else {"basin": {**asdict(basin), "ringed": basin.ringed, "deviation": basin.deviation}}
    computed = plane.loss.size if plane.computed is None else int(plane.computed.sum())
    kept = ("data", "split", "samples", "client", "points_held_out", "held_out_loss_error", "normalization_effect")
    return {
        **about,
        **{key: plane.attrs[key] for key in kept if key in plane.attrs},
        "kind": plane.kind,
        "models": [
            {"label": m.label, "role": m.role, "loss": m.loss, "error": m.error, "off_plane": m.off_plane}
            for m in plane.models
        ],
        "grid": [len(plane.b), len(plane.a)],
        "points_computed": computed,
        "points_interpolated": plane.loss.size - computed,
    }
