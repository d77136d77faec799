"""Planes as sentences, with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.style import describe_alignment, describe_statistics
from ...results.labels import of_labelled
from .basins import basin_of
from .point_counts import budget

if TYPE_CHECKING:
    from .result import Plane, PlaneModel


def precision_words(attrs: Mapping[str, Any]) -> str:
    """Describe the error of a lower precision, measured on the models themselves; nothing in float32."""
    if "precision_error" not in attrs:
        return ""
    return f"; {attrs['precision']} is off float32 by {attrs['precision_error']:.1e} in loss at most on these models"


def alignment_words(plane: Plane, cut: Callable[[str], str] = str) -> str:
    """Describe whose order of units a plane's models have; of planes on the same axes all have that of one model.

    Args:
        cut: shortens a label.
    """
    shared = "same_axes" in plane.attrs or not plane.models
    return describe_alignment(plane.attrs, "the first model" if shared else cut(plane.models[0].label))


def align_findings(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what units were matched by, as an entry of a result's findings; nothing where they stayed."""
    return {"align": attrs["align"]} if attrs.get("align") else {}


def surface_sentence(plane: Plane) -> str:
    """Describe another program's surface."""
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


def plane_sentence(plane: Plane) -> str:
    """Describe a plane, with its numbers."""
    basin = basin_of(plane)
    parts = [*_models_words(plane), *_axes_words(plane)]
    parts += [f"{m.label} {m.loss:.3g}{_error(' and {}', m)}, {m.off_plane:.2g} off the plane" for m in plane.shown]
    parts += [basin.sentence()] if basin is not None else []
    parts += plane.attrs.get("left_out", ())
    parts += _adaptive_words(plane) + _normalization_words(plane)
    parts += [words] if (words := alignment_words(plane)) else []
    return "; ".join(parts) + precision_words(plane.attrs)


def _models_words(plane: Plane) -> list[str]:
    """Describe the losses of the models that the plane was made from."""
    mean, anchors = plane.mean, plane.anchors
    if mean is not None:
        best = min(anchors, key=lambda m: (np.isnan(m.loss), m.loss))
        who = "three" if plane.span == "models" else f"{len(anchors)} clients"
        who += of_labelled(plane.attrs) if "same_axes" not in plane.attrs else ""  # whose panels are called by the run
        return [
            f"the mean has loss {mean.loss:.3g}{_error(' and error {}', mean)}, "
            f"the one of the {who} with the lowest loss {best.loss:.3g}{_error(' and {}', best)}"
        ]
    if plane.path:
        first, last = plane.path[0], plane.path[-1]
        off = max(model.off_plane for model in plane.path)
        return [
            f"from {first.label} (loss {first.loss:.3g}{_error(', error {}', first)}) to {last.label} "
            f"({last.loss:.3g}{_error(', {}', last)}), up to {off:.2g} off the plane"
        ]
    return [f"{m.label} has loss {m.loss:.3g}{_error(' and error {}', m)}" for m in plane.models[:1]]


def _error(words: str, model: PlaneModel) -> str:
    """Words about a model's error; nothing where the task has none."""
    return "" if np.isnan(model.error) else words.format(f"{100 * model.error:.1f} %")


def _axes_words(plane: Plane) -> list[str]:
    shares = plane.attrs.get("explained")
    if not shares:
        return []
    return [f"the axes show {100 * shares[0]:.0f} and {100 * shares[1]:.0f} % of the models' squared distances"]


def meets_aim(plane: Plane) -> bool:
    """Whether the error that was seen is within the aim of ``--adaptive``, and every point is known."""
    about = plane.attrs
    if plane.computed is None or plane.computed.all():
        return True
    return bool(about.get("held_out_beyond", np.inf) <= 1 and not about.get("points_unknown"))


def _adaptive_words(plane: Plane) -> list[str]:
    if plane.computed is None:
        return []
    about = plane.attrs
    measured, points = int(about["points_computed"]), plane.loss.size
    if measured == points:
        few = budget((len(plane.b), len(plane.a))) == points
        return [f"all points measured: {'too few to interpolate' if few else 'fewer do not tell this surface'}"]
    unknown = int(about["points_unknown"])
    off = [
        f"{100 * about['held_out_loss_error']:.2g} % of its range",
        f"{about['held_out_loss_bands']:.2g} bands of the colour scale",
        f"over the lowest tenth {100 * about['held_out_loss_low']:.2g} % of itself",
    ]
    error = 100 * about["held_out_error_rms"]
    part = f", {about['points_taken_over']:,} of them before" if about.get("points_taken_over") else ""
    if about.get("levels") == 2:
        part += f" after {about['points_of_part']:,} on {about['samples_of_part']:,} of the samples"
    return [
        f"{measured:,} of {points:,} points measured ({100 * measured / points:.0f} %){part}, the others interpolated: "
        f"at {about['points_held_out']} points held out the loss is off by at most {', '.join(off)}"
        + f" ({_aim_words(plane)})"
        + (
            ""
            if np.isnan(error)
            else f", and the error, interpolated linearly, by {error:.2g} points (root mean square)"
        )
        + (f"; {unknown:,} points next to losses that are not finite are unknown" if unknown else "")
    ]


def _aim_words(plane: Plane) -> str:
    """Say whether the aim is met, and what to do where it is not."""
    aim = "0.5 %, 0.25 and 2 %"
    if meets_aim(plane):
        return f"the aim, {aim}, is met"
    limit = f"a budget of {100 * plane.attrs.get('adaptive', 0.15):.2g} %"
    more = "ask again with a larger --budget, or none, to go on from these points"
    if plane.attrs["held_out_beyond"] <= 1:
        return f"the aim, {aim}, is met where points are known, and {limit} left some unknown: {more}"
    return f"more than the aim, {aim}, which {limit} did not reach: {more}"


def _normalization_words(plane: Plane) -> list[str]:
    """Describe the normalization statistics, and the numbers with each model's own, which are no points of the
    surface."""
    words = describe_statistics(plane.attrs, plane.normalization_policy)
    if not words:
        return []
    measured = np.array([[(m.loss, m.error), (m.own_loss, m.own_error)] for m in plane.models])
    if np.array_equal(measured[:, 0], measured[:, 1], equal_nan=True):
        return [words]
    own = [replace(model, loss=model.own_loss, error=model.own_error) for model in plane.models]
    told = "; ".join(_models_words(replace(plane, models=tuple(own))))
    what = "buffers" if "other_buffers" in plane.attrs else "statistics"
    return [f"{words} (with the models' own {what}, {told})"]
