"""The curvature of several models: the result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.models.layer_selections import ALL_LAYERS
from ...old_paths import names_of
from ...results import Table, TableResult, columns_of, group_rows, number
from .distance import ALL, FlatnessDistance, distances_of

#: measures whose stderr is that over what was drawn
SPREAD = ("trace", "ball_mean", "filter_mean")
#: measures whose flatness distance the summary tells, in words
TOLD = {"eigenvalue_1": "largest eigenvalue", "trace": "trace", "worst_case": "worst rise", "ball_mean": "mean rise"}


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
    """One model: its run and round ("" and None for a file), which model of the round (a file's name), its measures.

    Attributes:
        place: whose data it was measured on, ``client-3`` or ``all``; "" for the split that the result names.
        samples: of the place; None where the result says it.
        layer: the layers that alone move, a name, a pattern, or ``all layers``; "" where all do and nothing else was
            asked for.
        parameters: how many of them are trained; None without ``layer``.
    """

    run: str
    round: int | None
    model: str
    measures: tuple[CurvatureMeasure, ...]
    spectrum: Spectrum | None = None
    place: str = ""
    samples: int | None = None
    layer: str = ""
    parameters: int | None = None

    @property
    def named(self) -> str:
        """``ima@40/global``, the model alone."""
        return self.model if self.round is None else f"{self.run}@{self.round}/{self.model}"

    @property
    def label(self) -> str:
        """``ima@40/global``, for figures and sentences; with a place, ``ima@40/global on client-3``; with a layer,
        ``ima@40/global, fc1``."""
        at = f"{self.named}, {self.layer}" if self.layer else self.named
        return f"{at} on {self.place}" if self.place else at

    def measure(self, name: str) -> CurvatureMeasure | None:
        """Return the measure of a name; None where it was not asked for."""
        return next((one for one in self.measures if one.name == name), None)

    def sentence(self) -> str:
        """Its measures in words."""
        loss = self.measure("loss")
        if loss is not None and loss.value is not None and not math.isfinite(loss.value):
            return f"{self.label}: its loss is not finite, so nothing is known about it"
        hessian = ""
        if self.measure("trace") is not None:
            hessian = (
                f"eigenvalues {self._shown('eigenvalue_min')} to {self._shown('eigenvalue_1')}, trace "
                f"{self._shown('trace')}; "
            )
        return f"{self.label}: loss {self._shown('loss')}; {hessian}{self._rises()}"

    def _shown(self, name: str) -> str:
        measure = self.measure(name)
        if measure is None or measure.value is None or math.isnan(measure.value):
            return "unknown"
        spread = name in SPREAD and measure.stderr is not None and math.isfinite(measure.stderr)
        return f"{measure.value:.3g}" + (f" ± {measure.stderr:.1g}" if spread else "")

    def _radius(self, *names: str) -> float | None:
        """The radius of the first of these measures that has one; none has where it could not be measured."""
        found = (measure.radius for name in names if (measure := self.measure(name)) is not None)
        return next((radius for radius in found if radius is not None), None)

    def _rises(self) -> str:
        """How far the loss rises in both balls; of one about which nothing is known that it is so."""
        ball, filters = self._radius("worst_case", "ball_mean"), self._radius("filter_worst_case", "filter_mean")
        if ball is None:
            told = "how it rises about the model is unknown"
        else:
            told = (
                f"within {ball:g} it rises by {_or_more(self._shown('worst_case'))} at worst and "
                f"{self._shown('ball_mean')} on average"
            )
        if filters is None:
            return f"{told}, and relative to the filters that is unknown" if ball is not None else told
        worst, mean = _or_more(self._shown("filter_worst_case")), self._shown("filter_mean")
        return f"{told}, within {filters:g} of the filters by {worst} and {mean}"


def _or_more(shown: str) -> str:
    return shown if shown == "unknown" else f"{shown} or more"


@dataclass(frozen=True, eq=False)
class Sharpness(TableResult):
    """Sharpness of the loss at several models, all on the same samples; or each on those of one or several places.

    ``attrs`` is the provenance: data, split, samples, radii, draws, seed, device, versions.

    Raises:
        FedscopeError: two models that could not be told apart.

    >>> from fedscope.landscape.curvature.result import Curvature, CurvatureMeasure, Sharpness
    >>> made = Sharpness((Curvature("ima", 4, "global", (CurvatureMeasure("sam", 0.5, 0.05),)),), {"split": "train"})
    >>> [(model.label, one.name, one.value) for model, one in made.measures()]
    [('ima@4/global', 'sam', 0.5)]
    """

    command = "sharpness"
    suffixes = (".sharpness.csv", ".spectrum.csv", ".distance.csv", ".sharpness.json")
    format = "fedscope-sharpness"
    # version 1 had no places, version 2 no layers
    version = 3
    older = (1, 2)
    tables = (
        Table(
            ".sharpness.csv",
            {
                **{"run": str, "round": number, "model": str, "split": str, "samples": number},
                **{"measure": str, "radius": number, "value": number, "stderr": number, "place": str, "layer": str},
            },
            added={"place": "", "layer": ""},
        ),
        Table(
            ".spectrum.csv",
            {
                "run": str,
                "round": number,
                "model": str,
                "eigenvalue": float,
                "density": float,
                "place": str,
                "layer": str,
            },
            optional=True,
            added={"place": "", "layer": ""},
        ),
        Table(".distance.csv", {**columns_of(FlatnessDistance), "run": str, "round": number}, optional=True),
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
        where a density was asked for; BASE.distance.csv: a row a measure, where models were measured on all clients'
        data and on clients'."""
        split, count = self.attrs.get("split"), self.attrs.get("samples")
        measures = [
            (
                *(model.run, model.round, model.model, split, count if model.samples is None else model.samples),
                *(one.name, one.radius, one.value, one.stderr, model.place, model.layer),
            )
            for model, one in self.measures()
        ]
        points = [
            (model.run, model.round, model.model, *point, model.place, model.layer)
            for model in self.models
            if model.spectrum is not None
            for point in zip(model.spectrum.eigenvalue.tolist(), model.spectrum.density.tolist(), strict=True)
        ]
        return [measures, points or None, [astuple(one) for one in self.distances] or None]

    @cached_property
    def distances(self) -> tuple[FlatnessDistance, ...]:
        """The flatness distance of every measure of every model that was measured on all clients' data and on
        clients'."""
        return distances_of(self.models)

    def head(self) -> dict[str, Any]:
        """Return the models, and which of them have a spectrum."""
        names = ("run", "round", "model")
        return {
            "models": [
                {
                    **{name: getattr(model, name) for name in names},
                    "spectrum": model.spectrum is not None,
                    **({"place": model.place, "samples": model.samples} if model.place else {}),
                    **({"layer": model.layer, "parameters": model.parameters} if model.layer else {}),
                }
                for model in self.models
            ]
        }

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        measures, points = (group_rows(table, "run", "round", "model", "place", "layer") for table in tables[:2])
        models = []
        for about in head["models"]:
            place, layer = about.get("place", ""), about.get("layer", "")
            key = about["run"], about["round"], about["model"], place, layer
            own = (
                CurvatureMeasure(row["measure"], row["value"], row["radius"], row["stderr"])
                for row in measures.get(key, ())
            )
            spectrum = None
            if about["spectrum"]:
                spectrum = Spectrum(*np.array([(row["eigenvalue"], row["density"]) for row in points[key]]).T)
            models.append(
                Curvature(*key[:3], tuple(own), spectrum, place, about.get("samples"), layer, about.get("parameters"))
            )
        return cls(tuple(models), head["attrs"])

    def summary(self) -> str:
        """Every model's measures in words, and what frozen parameters do to them."""
        # clients' own numbers are in the table, and in words only where there is nothing that they are compared with
        compared = {(one.run, one.round, one.model) for one in self.distances}
        sentences = []
        for model in self.models:
            if model.layer:
                if model.layer == ALL_LAYERS:
                    sentences += [model.sentence(), self._by_layer(model)]
            elif (model.run, model.round, model.model) not in compared:
                sentences.append(model.sentence())
            elif model.place == ALL:
                sentences += [model.sentence(), self._distance(model)]
        spread = any(one.name in SPREAD and one.stderr is not None for _, one in self.measures())
        other = "other " if self.distances else ""  # the means over clients say theirs
        about = f"{other}± one standard error over the random directions drawn"
        return "\n".join([*sentences, *([about] if spread else []), *([self.frozen] if self.frozen else [])])

    def _by_layer(self, whole: Curvature) -> str:
        """Say which layer is the sharpest, and which has the largest trace."""
        parts = [one for one in self.models if one.named == whole.named and one is not whole]
        said = []
        for name in ("eigenvalue_1", "worst_case") if whole.measure("trace") else ("worst_case", "ball_mean"):
            of = [
                (measure.value, one.layer)
                for one in parts
                if (measure := one.measure(name)) and measure.value and not math.isnan(measure.value)
            ]
            if of:
                value, layer = max(of)
                said.append(f"the {TOLD[name]} is {value:.3g} in {layer} alone")
        trace = whole.measure("trace")
        shares = [
            (measure.value, one.layer, one.parameters)
            for one in parts
            if trace is not None
            and trace.value
            and (measure := one.measure("trace"))
            and measure.value is not None
            and math.isfinite(measure.value)
        ]
        if shares and trace is not None and trace.value:
            value, layer, count = max(shares)
            share = 100 * (count or 0) / (whole.parameters or 1)
            of_all = f"{value:.3g} of {trace.value:.3g} with {share:.3g} % of the parameters"
            said.append(f"the largest trace is {layer}'s, {of_all}")
        return f"{whole.named}: {', '.join(said)}" if said else f"{whole.named}: no layer has a finite measure"

    def _distance(self, model: Curvature) -> str:
        """Describe a model's flatness distances."""
        own = [
            one for one in self.distances if (one.run, one.round, one.model) == (model.run, model.round, model.model)
        ]
        found = {one.measure: one for one in own}
        told = [
            f"{name} {found[measure].text} (distance {found[measure].difference})"
            for measure, name in TOLD.items()
            if measure in found
        ]
        count = max(one.clients for one in own)
        each = f"the data of each of {count} clients (mean ± standard error over clients)"
        whose = "the one client's own data" if count == 1 else each
        return f"{model.named} on all clients' data against {whose}: {', '.join(told)}"

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
                    **({"place": model.place, "samples": model.samples} if model.place else {}),
                    **({"layer": model.layer, "parameters": model.parameters} if model.layer else {}),
                    "measures": {one.name: {"value": one.value, "stderr": one.stderr} for one in model.measures},
                }
                for model in self.models
            ],
            **({"distances": [asdict(one) for one in self.distances]} if self.distances else {}),
        }


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
