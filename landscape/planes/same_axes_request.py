"""Planes of several rounds or models along one pair of directions: what is asked, and how each is prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.analysis import PreparedAnalysis, place_of, slug
from ...checkpoints import FedscopeError, Run, parse_address
from ...training.inputs.data_of import SampleSet, same_partitions, sample_sets
from ...training.inputs.models import ModelLike, ResolvedModels, clients_of, names_of
from .. import Plane, Planes
from ..alignment.step import align_resolved
from ..run_alone import is_run
from .finite_clients import resolve_finite
from .inputs import PlaneModels
from .many_planes import PANEL
from .surveys import Posed, Survey

if TYPE_CHECKING:
    from ...checkpoints import Model
    from .basis.plane_bases import PlaneBasis
    from .surface.grids import Range

#: planes in one figure, at most
MOST = 4


def planes_on_same_axes(
    given: Sequence[ModelLike], asked: Sequence[str], rounds: str | None, shown: Sequence[ModelLike], survey: Survey
) -> PreparedAnalysis[Planes]:
    """A plane for each of several rounds or models, all along the same two directions.

    Args:
        given: rounds, or models with ``random``; asked: the kinds that were asked for; rounds: of ``--rounds``.
        shown: further models, each projected onto the plane of its own run and round, or of its run.

    Raises:
        FedscopeError: fewer than two, or more than four; what is no round; options that do not go with it; runs that
            gave their clients other samples, where it is their data.
    """
    names = names_of(given)
    if rounds is not None:
        raise FedscopeError(
            f"--rounds {rounds} does not go with --same-axes, which takes rounds as RUN@ROUND; leave it out"
        )
    if "trajectory" in asked:
        raise FedscopeError(
            "--trajectory has the axes of one run, so --same-axes does not go with it; give --random, or rounds as in "
            "runs/fma@60 runs/ima@60"
        )
    if not 2 <= len(given) <= MOST:
        raise FedscopeError(
            f"--same-axes compares the planes of 2 to {MOST} rounds or models, but got {len(given)}: "
            f"{' '.join(names)}; {'give another one too' if len(given) < 2 else 'leave some out'}"
        )
    kind = "random" if "random" in asked else "clients"
    for i, name in enumerate(names):
        if isinstance(given[i], str) and name in names[:i]:
            raise FedscopeError(f"{name} is named twice, so both planes would be the same; name another one")
    groups = [[model] for model in given] if kind == "random" else [_clients(name) for name in names]
    ends = _ends(names)
    own = _shown_with(groups, names, shown)
    planes = [
        survey.drawn(PlaneModels(kind, tuple(group), tuple(more), name, f".{end}"))
        for group, more, name, end in zip(groups, own, names, ends, strict=True)
    ]
    every = [model for plane in planes for model in (*plane.members, *plane.shown)]
    if survey.data_of is not None:
        same_partitions(every, survey.data_of)
    sets = sample_sets(every, survey.source, survey.data_of)
    shared = _Shared(tuple(planes), survey, tuple(sets))
    parts = [survey.part(plane, sets, lambda i=i: shared.pose(i)) for i, plane in enumerate(planes)]  # type: ignore[misc]
    folder, base = place_of("-".join(["plane-same-axes", *asked]), names)

    def join(found: list[Plane]) -> Planes:
        return Planes.of_parts(dict(zip([end for part in parts for end in part.ends], found, strict=True)))

    pages = tuple(f".{one.name}" if one.name else "" for one in sets)
    return PreparedAnalysis(folder, base, tuple(parts), join, (survey.end,), pages)


def _clients(name: str) -> list[str]:
    """Return a round's clients.

    Raises:
        FedscopeError: no round; one that did not record them.
    """
    is_round = not is_run(name) and (address := parse_address(name)).round is not None and address.which is None
    if not is_round:
        raise FedscopeError(
            f"--same-axes takes rounds, RUN@ROUND, whose clients tell the directions, but got {name}; give "
            f"{name if is_run(name) else 'RUN'}@last, or --random for directions that need no clients"
        )
    return clients_of([name])


def _ends(names: Sequence[str]) -> list[str]:
    """Return what tells the files of each plane apart."""
    ends = [slug(name).replace(".", "-") for name in names]
    return ends if len(set(ends)) == len(ends) else [f"{i}-{end}" for i, end in enumerate(ends, start=1)]


def _shown_with(
    groups: Sequence[Sequence[ModelLike]], names: Sequence[str], shown: Sequence[ModelLike]
) -> list[list[ModelLike]]:
    """Return of each plane the models that are shown on it: those of its round, or of its run where no other plane is
    of that.

    Raises:
        FedscopeError: a model of none of the planes' runs, or of a run with several planes and of none of their rounds.
    """
    places = [_place(group[0]) for group in groups]
    found: list[list[ModelLike]] = [[] for _ in groups]
    for model, name in zip(shown, names_of(shown), strict=True):
        place = _place(model)
        same = [i for i, other in enumerate(places) if place is not None and other == place]
        runs = [i for i, other in enumerate(places) if place is not None and other is not None and other[0] == place[0]]
        if not same and len(runs) != 1:
            raise FedscopeError(
                f"--show {name} is of {'none of the runs' if not runs else 'no round'} that --same-axes draws, so no "
                f"plane is its own; show models of {' '.join(names)}"
            )
        found[(same or runs)[0]].append(model)
    return found


def _place(model: ModelLike) -> tuple[Path, int] | None:
    """Return the run and the round of an address."""
    if not isinstance(model, str):
        return None
    address = parse_address(model)
    if address.round is None:
        return None
    run = Run.open(address.path)
    return run.path, run.round(address.round).number


@dataclass(frozen=True)
class _Shared:
    """What the planes have in common: models that are read once, both directions, and the range."""

    planes: tuple[PlaneModels, ...]
    survey: Survey
    sets: tuple[SampleSet, ...]

    def pose(self, i: int) -> Posed:
        """Return one plane's models, and how they and the others span it."""
        mine, group, resolved = self._slices[i], self._groups[i], self._posed
        models, said = resolved.models[mine], resolved.settings
        runs = tuple({model.run.path: model.run for model in models if model.run is not None}.values())
        paths = [str(run.path) for run in runs]
        told = {
            **said,
            "addresses": said["addresses"][mine],
            "models_sha256": said["models_sha256"][mine],
            "run": [one for one in said["run"] if one["path"] in paths],
        }
        plane = self._planes[i]
        left_out = {"left_out": [plane.left_out]} if plane.left_out else {}
        made_of = [sha256 for own in self._groups for sha256 in said["models_sha256"][own]]
        own = replace(resolved, models=models, settings=told, runs=runs or resolved.runs)

        def span(_: Sequence[Model]) -> PlaneBasis:
            return self._spans[i]

        def aligned() -> Sequence[Model]:
            return self._aligned[mine]

        assert group.stop - group.start == len(plane.members), "the first of a slice"
        settings = {"same_axes": made_of, **left_out}
        return Posed(own, span, aligned, settings, self._range, self._panels(i), len(plane.members))

    @cached_property
    def _slices(self) -> list[slice]:
        """Of each plane the places of its models among all."""
        ends = [0, *accumulate(len(plane.members) + len(plane.shown) for plane in self._planes)]
        return [slice(start, end) for start, end in pairwise(ends)]

    @cached_property
    def _groups(self) -> list[slice]:
        """The same without those that are shown."""
        return [
            slice(own.start, own.start + len(plane.members))
            for own, plane in zip(self._slices, self._planes, strict=True)
        ]

    @cached_property
    def _resolved(self) -> tuple[ResolvedModels, tuple[PlaneModels, ...]]:
        """Read all models, and say which planes are made of which."""
        return resolve_finite(self.planes, self.survey.source)

    @property
    def _planes(self) -> tuple[PlaneModels, ...]:
        """The planes without clients that diverged."""
        return self._resolved[1]

    @cached_property
    def _posed(self) -> ResolvedModels:
        """Return all models.

        Raises:
            FedscopeError: two planes of one model; networks or data that are not the same.
        """
        resolved, _ = self._resolved
        labels = [_label(resolved.models[own.start], self.planes[0].kind) for own in self._groups]
        for i, label in enumerate(labels):
            if label in labels[:i]:
                first, second = self.planes[labels.index(label)].title, self.planes[i].title
                raise FedscopeError(
                    f"{first} and {second} are both called {label}, and panels are told apart by that; name another "
                    "round, or rename a folder"
                )
        return resolved

    @cached_property
    def _aligned(self) -> Sequence[Model]:
        """Return all models, their units in the order of the first one's where that is asked."""
        return align_resolved(self._posed, self.survey.source, self.survey.align)

    @cached_property
    def _spans(self) -> list[PlaneBasis]:
        from ... import landscape

        groups = [self._aligned[own] for own in self._groups]
        return landscape.on_same_axes(self.planes[0].kind, groups, self.survey.source.seed, self._posed.module)

    def _range(self) -> tuple[Range, Range]:
        """Return the ends of both axes: those asked for, or such that all planes have room."""
        if self.survey.ranges is not None:
            return self.survey.ranges
        from .surface.grids import grid_of

        places = []
        for span, own, mine in zip(self._spans, self._groups, self._slices, strict=True):
            exact = [*(model for model, _ in span.members), *self._aligned[own.stop : mine.stop]]
            places += span.places(exact)
        a, b = grid_of(places, self._spans[0].reaches, {"grid": 2, "margin": self.survey.margin})
        return (float(a[0]), float(a[-1])), (float(b[0]), float(b[-1]))

    def _panels(self, i: int) -> dict[str, dict[str, Any]]:
        """Return what stands above the panels of a plane, for each set of samples."""
        label = _label(self._posed.models[self._groups[i].start], self.planes[0].kind)
        several = len(self.sets) > 1
        return {
            one.name: {
                PANEL: {
                    "row": row,
                    "head": one.title if several else "",
                    "title": "",
                    "data": one.title if one.name else "",
                    "figure": self.survey.end,
                    "label": label,
                }
            }
            for row, one in enumerate(self.sets)
        }


def _label(model: Model, kind: str) -> str:
    """``ima@60``: of a model, or of the round whose client it is."""
    return model.label.rpartition("/")[0] or model.label if kind == "clients" else model.label
