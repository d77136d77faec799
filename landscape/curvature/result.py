"""The curvature of several models: the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...old_paths import names_of
from ...results import Table, TableResult, group_rows, number

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class CurvatureMeasure:
    """One number of one model.

    ``name``: ``loss`` (nats), ``error`` (share), ``gradient_norm`` (‖∇L‖, nats per unit of weight); rises of the loss
    in nats: ``sam``, ``worst_case`` (a lower bound), ``ball_mean``, ``filter_mean``, ``filter_worst_case`` (a lower
    bound); of the Hessian in nats per unit of weight squared: ``eigenvalue_1`` (the largest) to ``eigenvalue_k``,
    ``eigenvalue_min``, ``trace``.

    ``radius``: of the ball, in units of weight, or relative to the filters for ``filter_*``. ``stderr``: over the draws
    of ``ball_mean``, ``filter_mean``, ``trace``; of an eigenvalue its residual ‖H v − λ v‖, a bound. Each is None
    where it does not exist, so also a ``value`` that did not converge.
    """

    name: str
    value: float | None
    radius: float | None = None
    stderr: float | None = None


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The spectral density of a Hessian: ``density`` over ``eigenvalue``, [points] each, integral 1."""

    eigenvalue: np.ndarray
    density: np.ndarray


@dataclass(frozen=True, eq=False)
class Curvature:
    """One model: its run and round ("" and None for a file), which model of the round (a file's name), its measures."""

    run: str
    round: int | None
    model: str
    measures: tuple[CurvatureMeasure, ...]
    spectrum: Spectrum | None = None

    @property
    def label(self) -> str:
        """``ima@40/global``, for figures and sentences."""
        return self.model if self.round is None else f"{self.run}@{self.round}/{self.model}"

    def measure(self, name: str) -> CurvatureMeasure | None:
        """Return the measure of a name; None where it was not asked for."""
        return next((one for one in self.measures if one.name == name), None)

    def sentence(self) -> str:
        """Its measures in words."""

        def shown(name: str) -> str:
            measure = self.measure(name)
            if measure is None or measure.value is None:
                return "unknown"
            spread = name in ("trace", "ball_mean", "filter_mean") and measure.stderr is not None
            return f"{measure.value:.3g}" + (f" ± {measure.stderr:.1g}" if spread else "")

        def radius(name: str) -> str:
            measure = self.measure(name)
            return "" if measure is None or measure.radius is None else f"{measure.radius:g}"

        hessian = ""
        if self.measure("trace") is not None:
            hessian = f"eigenvalues {shown('eigenvalue_min')} to {shown('eigenvalue_1')}, trace {shown('trace')}; "
        return (
            f"{self.label}: loss {shown('loss')}; {hessian}"
            f"within {radius('worst_case')} it rises by {shown('worst_case')} or more at worst and "
            f"{shown('ball_mean')} on average, within {radius('filter_worst_case')} of the filters by "
            f"{shown('filter_worst_case')} or more and {shown('filter_mean')}"
        )


@dataclass(frozen=True, eq=False)
class Sharpness(TableResult):
    """Sharpness of the loss at several models, all on the same samples.

    ``attrs`` is the provenance: data, split, samples, radii, draws, seed, device, versions.

    Raises:
        FedscopeError: two models that could not be told apart.

    >>> from fedscope.landscape.curvature.result import Curvature, CurvatureMeasure, Sharpness
    >>> made = Sharpness((Curvature("ima", 4, "global", (CurvatureMeasure("sam", 0.5, 0.05),)),), {"split": "train"})
    >>> [(model.label, one.name, one.value) for model, one in made.measures()]
    [('ima@4/global', 'sam', 0.5)]
    """

    command = "sharpness"
    suffixes = (".sharpness.csv", ".spectrum.csv", ".sharpness.json")
    format = "fedscope-sharpness"
    tables = (
        Table(
            ".sharpness.csv",
            {
                **{"run": str, "round": number, "model": str, "split": str, "samples": number},
                **{"measure": str, "radius": number, "value": number, "stderr": number},
            },
        ),
        Table(
            ".spectrum.csv",
            {"run": str, "round": number, "model": str, "eigenvalue": float, "density": float},
            optional=True,
        ),
    )

    models: tuple[Curvature, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        labels = [model.label for model in self.models]
        for label in labels:
            if labels.count(label) > 1:
                raise FedscopeError(
                    f"{label} stands for {labels.count(label)} of the models, whose rows could not be told apart; "
                    "name each once, and rename one of two runs with the same name"
                )

    def measures(self) -> Iterator[tuple[Curvature, CurvatureMeasure]]:
        """Every measure of every model."""
        return ((model, one) for model in self.models for one in model.measures)

    def rows(self) -> list[Any]:
        """BASE.sharpness.csv: a row a measure, empty where a value does not exist; BASE.spectrum.csv: a row a point,
        where a density was asked for."""
        measured_on = self.attrs.get("split"), self.attrs.get("samples")
        measures = [
            (model.run, model.round, model.model, *measured_on, one.name, one.radius, one.value, one.stderr)
            for model, one in self.measures()
        ]
        points = [
            (model.run, model.round, model.model, *point)
            for model in self.models
            if model.spectrum is not None
            for point in zip(model.spectrum.eigenvalue.tolist(), model.spectrum.density.tolist(), strict=True)
        ]
        return [measures, points or None]

    def head(self) -> dict[str, Any]:
        """Return the models, and which of them have a spectrum."""
        names = ("run", "round", "model")
        return {
            "models": [
                {**{name: getattr(model, name) for name in names}, "spectrum": model.spectrum is not None}
                for model in self.models
            ]
        }

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        measures, points = (group_rows(table, "run", "round", "model") for table in tables)
        models = []
        for about in head["models"]:
            key = about["run"], about["round"], about["model"]
            own = (
                CurvatureMeasure(row["measure"], row["value"], row["radius"], row["stderr"])
                for row in measures.get(key, ())
            )
            spectrum = None
            if about["spectrum"]:
                spectrum = Spectrum(*np.array([(row["eigenvalue"], row["density"]) for row in points[key]]).T)
            models.append(Curvature(*key, tuple(own), spectrum))
        return cls(tuple(models), head["attrs"])

    def summary(self) -> str:
        """Every model's measures in words, and what frozen parameters do to them."""
        return "\n".join([*(model.sentence() for model in self.models), *([self.frozen] if self.frozen else [])])

    @property
    def frozen(self) -> str:
        """True if frozen parameters count, in words; "" where the module has none."""
        if self.attrs.get("frozen") == "none is trained":
            return "all over every parameter, for the network marks none as trained (requires_grad)"
        count = self.attrs.get("frozen_parameters")
        if not count:
            return ""
        if self.attrs.get("frozen") == "counted":
            return f"all over every parameter, the {count:,} frozen ones too"
        return (
            f"all over the {self.attrs['parameters']:,} parameters that are trained, without the {count:,} frozen ones "
            "(--frozen counts them)"
        )

    def findings(self) -> dict[str, Any]:
        """Every model's measures by name."""
        return {
            "models": [
                {
                    **{"run": model.run, "round": model.round, "model": model.model},
                    "measures": {one.name: {"value": one.value, "stderr": one.stderr} for one in model.measures},
                }
                for model in self.models
            ]
        }


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
