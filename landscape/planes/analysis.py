"""Losses on planes in weight space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from ...analysis.analysis import PreparedAnalysis, Step, analysis, place_of
from ...analysis.rounds import Rounds, rounds_text, spell_ranges
from ...analysis.runs import open_runs
from ...analysis.settings import (
    NORMALIZATIONS,
    EvaluationConfig,
    EvaluationSettings,
    at_least,
    read_range,
    refuse_unknown_choice,
)
from ...checkpoints import FedscopeError
from ...training.inputs.data_of import training_split
from ...training.inputs.models import ModelLike, as_list, expand_all, names_of
from .. import Panel, Plane, Planes
from ..alignment.step import refuse_unknown_align
from ..run_alone import choose_plane, run_alone
from .inputs import panels_of, plane_models
from .same_axes_request import planes_on_same_axes
from .surveys import Survey

#: room round the models where nothing is said
MARGIN = 0.3


@analysis
def plane(
    models: ModelLike | Sequence[ModelLike],
    *,
    show: ModelLike | Sequence[ModelLike] = (),
    rounds: Rounds = None,
    clients: bool = False,
    trajectory: bool = False,
    random: bool = False,
    same_axes: bool = False,
    data_of: str | int | Sequence[int] | None = None,
    grid: int = 51,
    margin: float = MARGIN,
    range: Sequence[float] | None = None,
    adaptive: bool = False,
    budget: float | None = None,
    normalization: str = "interpolate",
    align: str = "none",
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Plane | Planes]:
    """Losses on the plane through three models, L(w_1 + a û + b v̂); the models and their mean are measured exactly.

    Both axes are L2 distances. Other planes go near many models, or round one; several are one
    :class:`~fedscope.landscape.Planes`, which draws them on one colour scale. See
    :func:`~fedscope.landscape.through_models`, :func:`~fedscope.landscape.near_clients`,
    :func:`~fedscope.landscape.along_trajectory` and :func:`~fedscope.landscape.random_directions` for the axes.

    Args:
        models: three: addresses (``runs/ima@40``, ``runs/ima@last/global``, ``runs/ima@40/client-17``), files,
            ``nn.Module`` s or state dicts. A run with ``rounds`` or ``trajectory``, ``RUN@ROUND`` with ``clients``, one
            model with ``random``. A run alone is the plane near the clients of its last recorded round.
        show: models to project onto the plane too, measured exactly; ``RUN@all/global`` is a model a round.
        rounds: of a run or several: a plane through three clients of each of these rounds, and one through the last
            three global models; with ``trajectory``, its rounds.
        clients: the plane near all clients of a round: their mean and their first two principal components. Clients
            whose model is not finite are left out, which is said, as they are of ``rounds`` and ``same_axes``.
        trajectory: the plane near the global models of a run over its rounds.
        random: two random filter-normalised directions from one model, drawn with ``seed``.
        same_axes: a plane for each of two to four rounds, ``RUN@ROUND``, or with ``random`` models: all along the same
            two unit vectors and over the same range, each from its own origin, so that their surfaces can be compared.
            The origin is the mean of the round's clients, or the model. The directions are those along which the
            clients of all these rounds differ most, each about its own mean and every round counted alike; with
            ``random`` their filters are as long as the models' are on average. See
            :func:`~fedscope.landscape.on_same_axes`.
        data_of: measure on these clients' own training data, a plane each: numbers, ``client-7``, or ``clients``, those
            among the models; ``own``, where one client is; ``all`` clients' data; or ``every`` client of the round and
            all.
        grid: points a side.
        margin: room round the models, as a share of their extent.
        range: a from, a to, b from, b to instead, in L2 distance.
        adaptive: measure only as many of a surface's points as tell the others, and interpolate these; the error is
            measured. It goes on until that is small enough: mostly with at most 15 % of the points, at most with all.
            From 2,000 samples and 30 x 30 points on, first on a tenth of the samples, and then mostly with at most
            7.5 % of the points on all.
        budget: with ``adaptive``, the share of a surface's points that is measured at most; what is reached is said.
        normalization: where BatchNorm statistics come from: ``interpolate``, ``re-estimate`` or ``keep``.
        align: bring the units of all models into the order of the first one's before, by their ``weights`` or their
            ``activations``; see :func:`fedscope.align`.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``both`` gives
            two planes in one pass; ``data`` and ``model`` are needed where no model is of a run.

    Raises:
        FedscopeError: another number of models; identical or collinear ones; settings that exclude one another.

    >>> import fedscope, torch
    >>> nets = [torch.nn.Linear(2, 2) for _ in range(3)]
    >>> x = torch.randn(40, 2)
    >>> plane = fedscope.plane(nets, data=(x, (x[:, 0] > 0).long()), grid=5)
    >>> plane.loss.shape, [model.role for model in plane.models]
    ((5, 5), ['anchor', 'anchor', 'anchor', 'mean'])

    Source: Garipov et al. 2018 and Izmailov et al. 2018 for three models; Li et al., NeurIPS 2018, for trajectories
    and random directions.
    """
    kinds = {"clients": clients, "trajectory": trajectory, "random": random}
    asked = [kind for kind, is_asked in kinds.items() if is_asked]
    if len(asked) > 1:
        raise FedscopeError(f"--{asked[0]} and --{asked[1]} are two planes; give one of them")
    whose = rounds_text(data_of)
    source = EvaluationConfig.of("test" if whose is None else "train", measured, both=True)
    training_split(whose, source)
    refuse_unknown_choice("normalization", normalization, NORMALIZATIONS)
    refuse_unknown_align(align)
    at_least("grid", grid, 2)
    ends = None
    if range is not None:
        a_from, a_to, b_from, b_to = read_range(range, "a from, a to, b from, b to")
        ends = (a_from, a_to, b_from, b_to)
    share = share_of(budget, grid, adaptive=adaptive)
    if margin != MARGIN and (range is not None or random):
        instead = "--range sets the ends" if range is not None else "--random draws round one, by --range"
        raise FedscopeError(f"--margin {margin:g} is room round several models, and {instead}; leave --margin out")
    survey = Survey(grid, margin, ends, share, normalization, whose, source, align)
    given, shown = as_list(models), as_list(show)
    if same_axes:
        return planes_on_same_axes(given, asked, rounds_text(rounds), expand_all(shown), survey)
    if rounds is None and not asked and len(given) != 3 and (path := run_alone(given)):
        chosen = choose_plane(path)
        kind = [chosen.kind] if chosen.kind in kinds else []
        made = _one_plane(chosen.models, kind, None, expand_all(shown), survey, chosen.spare)
        return replace(made, note=chosen.said)
    if rounds is None or trajectory:
        return _one_plane(given, asked, rounds_text(rounds), expand_all(shown), survey)
    if asked or shown:
        other = f"--{asked[0]}" if asked else f"--show {names_of(shown)[0]}"
        raise FedscopeError(f"{other} does not go with panels over --rounds; leave out one of them")
    return _over_rounds(names_of(given), str(rounds_text(rounds)), survey)


def share_of(budget: float | None, grid: int, *, adaptive: bool) -> float | None:
    """Return the share of a surface's points that may be measured: all where there is no budget; None where they are.

    Raises:
        FedscopeError: a budget without ``adaptive``, one that is no share, one of too few points.
    """
    if budget is None:
        return 1.0 if adaptive else None
    if isinstance(budget, bool | str) or not 0 < budget <= 1:
        said = repr(budget) if isinstance(budget, str) else budget
        raise FedscopeError(
            f"--budget {said!s} is no share of the points; give one above 0 and at most 1 (0.15 is 15 %)"
        )
    if not adaptive:
        raise FedscopeError(
            f"--budget {budget!s} is about --adaptive, and without it all points are measured; add --adaptive"
        )
    from .point_counts import FEWEST

    points = int(budget * grid**2 + 1e-9)
    if points < min(FEWEST, grid**2):
        raise FedscopeError(
            f"--budget {budget!s} is {points} of {grid} x {grid} points, and fewer than {FEWEST} tell no "
            "surface; give a larger --budget or --grid"
        )
    return float(budget)


def _one_plane(
    models: Sequence[ModelLike],
    asked: Sequence[str],
    rounds: str | None,
    shown: Sequence[ModelLike],
    survey: Survey,
    spare: tuple[str, ...] = (),
) -> PreparedAnalysis[Plane | Planes]:
    """One plane, on one or several sets of samples."""
    spanned = survey.drawn(replace(plane_models(models, asked[0] if asked else "models", rounds, shown), spare=spare))
    folder, name = place_of("-".join(["plane", *asked]), names_of(models))
    if spanned.kind == "trajectory":
        folder, name = Path(names_of(models)[0]) / "figures", "plane-trajectory"
    sets = survey.sets(spanned)
    part = survey.part(spanned, sets)
    if part.ends == ("",):
        return PreparedAnalysis(folder, name, (part,), lambda planes: planes[0], tuple(Plane.drawn), tuple(Plane.paged))

    def join(planes: list[Plane]) -> Planes:
        panels = [Panel(end, plane, "", one.title) for end, plane, one in zip(part.ends, planes, sets, strict=True)]
        return Planes([panels], (), survey.end)

    return PreparedAnalysis(folder, name, (part,), join, (survey.end,), part.ends)


def _over_rounds(paths: Sequence[str], rounds: str, survey: Survey) -> PreparedAnalysis[Plane | Planes]:
    """Panels over rounds, a row a run and a set of samples."""
    runs = open_runs(paths)
    if survey.data_of is not None and (word := survey.data_of.strip()) in ("own", "every", "clients"):
        raise FedscopeError(
            f"--data-of {word} is another set of clients in every round; name the clients: --data-of 3,8,11"
        )
    parts: list[Step[Plane]] = []
    rows: list[list[tuple[int, str, str]]] = []  # of each panel the place of its plane, its title and its data
    heads: list[str] = []
    for run, path in zip(runs, paths, strict=True):
        panels = panels_of(run, path, rounds, f".{run.name}" if len(runs) > 1 else "")
        sets = survey.sets(panels[0])
        first = sum(len(part.ends) for part in parts)
        parts += [survey.part(panel, sets) for panel in panels]
        for s, one in enumerate(sets):
            title = one.title if one.name else ""
            rows.append([(first + p * len(sets) + s, panel.title, title) for p, panel in enumerate(panels)])
            heads.append(", ".join(words for words in (run.name if len(runs) > 1 else "", title) if words))
    ends = [end for part in parts for end in part.ends]

    def join(planes: list[Plane]) -> Planes:
        panels = [[Panel(ends[i], planes[i], title, data) for i, title, data in row] for row in rows]
        return Planes(panels, heads, survey.end)

    name = f"plane-rounds-{spell_ranges(rounds).replace(',', '-')}"
    return PreparedAnalysis(Path(paths[0]) / "figures", name, tuple(parts), join, (survey.end,), tuple(ends))
