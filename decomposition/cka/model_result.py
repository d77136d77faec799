"""CKA of several models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...results import ArrayResult, Collection, along
from ...results.arrays import Variable
from .result import Array, extremes, undefined_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class ModelCKA(ArrayResult):
    """Similarity of M models at one layer: their labels, CKA [M, M] and its standard errors [M, M].

    The standard errors are a jackknife over minibatches, NaN where there is one.

    Raises:
        FedscopeError: two models that could not be told apart.
    """

    command = "cka"
    drawn: ClassVar = {"": "draw_models"}
    kind = "cka-models"
    collected = "ModelCKAs"
    needed = {"model_label": "", "cka": "model model2", "cka_stderr": "model model2"}

    labels: tuple[str, ...]
    cka: Array
    cka_stderr: Array
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for label in self.labels:
            if self.labels.count(label) > 1:
                raise FedscopeError(
                    f"{label} stands for {self.labels.count(label)} of the models, which could not be told apart; name "
                    "each once, and rename one of two runs with the same name"
                )

    @property
    def layer(self) -> str:
        """The layer at which the models were compared."""
        return str(self.attrs.get("layer", ""))

    @property
    def undefined(self) -> list[str]:
        """The models for which CKA does not exist."""
        broken = np.isnan(np.diagonal(self.cka))
        return [label for label, is_broken in zip(self.labels, broken, strict=True) if is_broken]

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``model`` and ``model2``."""
        spread = "standard error of CKA, jackknife over minibatches"
        variables = {
            "model_label": along("model", self.labels, "model"),
            "cka": along("model model2", self.cka, "linear CKA between models", "1"),
            "cka_stderr": along("model model2", self.cka_stderr, spread, "1"),
        }
        return {}, variables

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result from what :meth:`arrays` gave."""
        return cls(tuple(map(str, values["model_label"])), values["cka"], values["cka_stderr"], attrs)

    def summary(self) -> str:
        """Describe the least and the most alike, and for which CKA does not exist."""
        sentence = f"{self.layer}: CKA {extremes(self.cka, self.labels) or 'of no pair'}"
        return sentence + (f"; {undefined_words(list_few(self.undefined))}" if self.undefined else "")

    def findings(self) -> dict[str, Any]:
        """Return the models, and their matrix by its layer."""
        return {"models": list(self.labels), "cka": {self.layer: self.cka}}


class ModelCKAs(Collection[ModelCKA]):
    """Similarity of the same models at several layers; a figure a layer."""

    command = "cka"
    part = "ModelCKA"

    def figure(self, width: float | None = None, title: str | None = None, *more: Any, **drawing: Any) -> Figure:
        """There is none.

        Raises:
            FedscopeError: similarities of several layers; see :meth:`figures`.
        """
        layers = ", ".join(part.layer for part in self)
        raise FedscopeError(f"similarities of different layers ({layers}) do not go into one figure; draw one a layer")

    def figures(self, width: float | None = None, title: str | None = None, **drawing: Any) -> dict[str, Figure]:
        """One a layer."""
        return {end: part.figure(width, title, **drawing) for end, part in self.parts.items()}

    def findings(self) -> dict[str, Any]:
        """Return the models, and a matrix a layer."""
        return {"models": list(self[0].labels), "cka": {part.layer: part.cka for part in self}}
