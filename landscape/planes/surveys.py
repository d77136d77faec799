"""Settings of every plane that is asked for, and how a plane on some sets of samples is prepared and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.analysis import PreparedStep, Step
from ...analysis.execution import Execution
from ...analysis.settings import EvaluationConfig
from ...checkpoints import Layout, Model
from ...checkpoints.io.warn_user import warn_user
from ...training.inputs.data_of import SampleSet, sample_sets
from ...training.inputs.models import ResolvedModels, calibration_of, calibration_settings
from .. import Plane
from ..alignment.step import align_resolved
from .finite_clients import resolve_finite, without_broken
from .inputs import PlaneModels

if TYPE_CHECKING:
    from torch import nn

    from .basis.plane_bases import PlaneBasis
    from .surface.grids import Range


@dataclass(frozen=True)
class Posed:
    """The models of a plane, read, and how they span it.

    Attributes:
        models: resolved: those that it is made of, then those shown.
        settings: what the plane's numbers depend on besides these.
        span: given the models that it is made of, gives the plane.
        aligned: gives the models with their units in one order, where that is asked.
        ranges: given the plane, the ends of both axes; None where its models say them.
        said: by the names of the sets of samples, what the plane says of itself that no number depends on.
        members: how many of the models it is made of; None: as many as were asked for.
    """

    models: ResolvedModels
    span: Callable[[Sequence[Model]], PlaneBasis]
    aligned: Callable[[], Sequence[Model]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    ranges: Callable[[], tuple[Range, Range]] | None = None
    said: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    members: int | None = None


@dataclass(frozen=True)
class Survey:
    """Settings of every plane: those of :func:`~fedscope.landscape.planes.analysis.plane`, ``adaptive`` as the share
    that may be measured."""

    grid: int
    margin: float
    range: tuple[float, float, float, float] | None
    adaptive: float | None
    normalization: str
    data_of: str | None
    source: EvaluationConfig
    align: str = "none"

    @property
    def end(self) -> str:
        """Return the end of the name of a figure of several sets of samples, behind the base: it does not replace that
        of one."""
        if self.data_of is not None:
            return f".data-of-{self.data_of.replace(',', '-')}"
        return ".both" if self.source.split == "both" else ""

    def sets(self, models: PlaneModels) -> list[SampleSet]:
        """Return the samples that the plane is measured on."""
        return sample_sets([*models.members, *models.shown], self.source, self.data_of)

    def drawn(self, models: PlaneModels) -> PlaneModels:
        """Return the models as they are drawn, where these say on whose data the plane is measured: a client that is
        left out has no plane of its own data."""
        return without_broken(models) if (self.data_of or "").strip() == "clients" else models

    @property
    def ranges(self) -> tuple[Range, Range] | None:
        """Return the ends of both axes that were asked for."""
        return None if self.range is None else (self.range[:2], self.range[2:])

    def pose(self, models: PlaneModels) -> Posed:
        """Read the models of a plane that stands for itself."""
        resolved, (taken,) = resolve_finite([models], self.source)

        def span(made_of: Sequence[Model]) -> PlaneBasis:
            from ... import landscape

            return landscape.span_of(models.kind, made_of, self.source.seed, resolved.module)

        said = {"left_out": [taken.left_out]} if taken.left_out else {}
        aligned = partial(align_resolved, resolved, self.source, self.align)
        return Posed(resolved, span, aligned, said, members=len(taken.members))

    def _random_settings(self, module: nn.Module) -> dict[str, Any]:
        """Describe random directions, and which ends both axes have where they are not told."""
        from .basis.plane_bases import has_single_entries

        said = random_settings(module, self.source.seed)
        if self.range is None and has_single_entries(Layout.of(module)):
            said["directions"] += ", each axis to the length of its own"
        return said

    def part(
        self, models: PlaneModels, sets: Sequence[SampleSet], pose: Callable[[], Posed] | None = None
    ) -> Step[Plane]:
        """A plane on one or several sets of samples, in one pass.

        Args:
            pose: reads its models, where they do not span it by themselves.
        """
        ends = tuple(f"{models.end}.{one.name}" if one.name else models.end for one in sets)

        def prepare() -> PreparedStep[Plane]:
            given = self.pose(models) if pose is None else pose()
            resolved, count = given.models, len(models.members) if given.members is None else given.members
            read = [one.read(resolved, self.source) for one in sets]
            settings = {
                **resolved.settings,
                "kind": models.kind,
                "grid": self.grid,
                "margin": self.margin if self.range is None and models.kind != "random" else None,
                "range": list(self.range) if self.range else None,
                "adaptive": self.adaptive,
                "normalization": self.normalization,
                **calibration_settings(resolved, self.source, self.normalization),
                **({"align": self.align} if self.align != "none" else {}),
                **(self._random_settings(resolved.module) if models.kind == "random" else {}),
                **given.settings,
            }

            def compute(attrs: list[dict[str, Any]], work: Execution) -> list[Plane]:
                from ... import landscape
                from .drawing.preview import preview_of

                aligned = given.aligned()
                base = None if work.preview is None else Path(f"{work.preview}{ends[0]}")
                with work.progress(f"plane {models.title}".strip()) as report, preview_of(base) as preview:
                    return landscape.survey(
                        resolved.module,
                        [samples for samples, _ in read],
                        given.span(aligned[:count]),
                        shown=aligned[count:],
                        provenance=[
                            {**own, **work.about, **given.said.get(one.name, {})}
                            for own, one in zip(attrs, sets, strict=True)
                        ],
                        grid=self.grid,
                        margin=self.margin,
                        ranges=self.ranges if given.ranges is None else given.ranges(),
                        adaptive=self.adaptive,
                        earlier=work.earlier,
                        normalization=self.normalization,
                        calibration=calibration_of(resolved, self.source, self.normalization),
                        compute=self.source.compute,
                        progress=report,
                        preview=preview,
                        partial=work.keep,
                        block=work.block,
                        elsewhere=work.elsewhere,
                    )

            return PreparedStep([{**settings, **about} for _, about in read], compute)

        return Step(Plane, prepare, ends)


def random_settings(module: nn.Module, seed: int) -> dict[str, Any]:
    """Describe random directions for a result; that they move frozen parameters is a warning, too."""
    from ...evaluation.tied_parameters import tied_names
    from ...evaluation.trainable_parameters import frozen_count

    directions = "orthogonal in every filter" + (", one of tied tensors" if tied_names(module) else "")
    settings: dict[str, Any] = {"directions_seed": seed, "directions": directions}
    if frozen := frozen_count(module):
        settings["frozen_moved"] = frozen
        warn_user(f"random directions move all filters, those of the {frozen:,} frozen parameters too")
    return settings
