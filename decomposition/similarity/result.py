"""CKA of a run's clients over rounds, or of several models: results that save, load and draw themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...checkpoints import FedscopeError
from .files import read_clients, read_models, write_clients, write_models

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class RoundCKA:
    """One round of C clients. NaN where CKA does not exist, and all that is made from it.

    Attributes:
        round: its number.
        client_ids: [C] int64.
        cka: [C, C], between clients; 1 on the diagonal.
        cka_global: [C], of each client with the round's global model; NaN where that was not recorded.
        mean, mean_global: over the pairs of clients (i < j), and over the clients.
        mean_stderr, mean_global_stderr: jackknife over minibatches; NaN where there is one.
        test_error: of the round's global model, measured while training, a share; NaN where that was not done.
    """

    round: int
    client_ids: np.ndarray
    cka: np.ndarray
    cka_global: np.ndarray
    mean: float
    mean_stderr: float
    mean_global: float = math.nan
    mean_global_stderr: float = math.nan
    test_error: float = math.nan

    @property
    def undefined(self) -> list[int]:
        """The clients for which CKA does not exist, by their ids."""
        return [int(k) for k in self.client_ids[np.isnan(np.diagonal(self.cka))]]

    def to_json(self) -> dict[str, Any]:
        """As what JSON holds, NaN too."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RoundCKA:
        """The inverse of :meth:`to_json`."""
        arrays = {name: np.array(values[name], np.float64) for name in ("cka", "cka_global")}
        return cls(**{**values, "client_ids": np.array(values["client_ids"], np.int64), **arrays})


@dataclass(frozen=True, eq=False)
class ClientCKA:
    """Similarity of a run's clients over rounds, at one layer.

    ``attrs`` is the provenance: run, layer, estimator, data, split, samples, batch, seed, device, versions.

    Raises:
        FedscopeError: no round.

    >>> one = RoundCKA(1, np.array([3, 8]), np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([0.7, 0.9]), 0.5, 0.01, 0.8)
    >>> ClientCKA((one,), {"layer": "output"}).layer
    'output'
    """

    rounds: tuple[RoundCKA, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rounds:
            raise FedscopeError("similarity over rounds needs a round; give at least one (--rounds last)")

    @property
    def layer(self) -> str:
        """Where the models were compared."""
        return str(self.attrs.get("layer", ""))

    @property
    def run(self) -> str:
        """The run's name, "" where it is not known."""
        known = self.attrs.get("run")
        path = known[0]["path"] if isinstance(known, list) and known else ""
        return Path(path).name

    def save(self, path: Path | str) -> None:
        """Write ``BASE.nc``: ``cka[round, client, client2]``, ``client_ids[round, client]`` the means and the
        test error a round.

        Rounds of fewer clients are padded, ids with -1 and numbers with NaN.
        """
        write_clients(self, Path(path))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: no such file, or another result's.
        """
        rounds, attrs = read_clients(Path(path))
        return cls(tuple(RoundCKA(**values) for values in rounds), attrs)

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """The first, middle and last round as heat maps above the means over rounds and, where they were measured,
        test errors against the means; ``width`` in inches."""
        from .figure import draw_clients

        return draw_clients([self], width, title)


@dataclass(frozen=True, eq=False)
class ModelCKA:
    """Similarity of M models at one layer: their labels, CKA [M, M] and its standard errors [M, M].

    The standard errors are a jackknife over minibatches, NaN where there is one.

    Raises:
        FedscopeError: two models that could not be told apart.
    """

    labels: tuple[str, ...]
    cka: np.ndarray
    cka_stderr: np.ndarray
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for label in self.labels:
            if self.labels.count(label) > 1:
                raise FedscopeError(
                    f"{label} stands for {self.labels.count(label)} of the models, which could not be told apart; name "
                    "each once, and rename one of two runs with the same name"
                )

    @property
    def layer(self) -> str:
        """Where the models were compared."""
        return str(self.attrs.get("layer", ""))

    @property
    def undefined(self) -> list[str]:
        """The models for which CKA does not exist."""
        own = np.isnan(np.diagonal(self.cka))
        return [label for label, broken in zip(self.labels, own, strict=True) if broken]

    def save(self, path: Path | str) -> None:
        """Write ``BASE.nc``: ``cka[model, model2]``, ``cka_stderr[model, model2]`` and ``model_label[model]``."""
        write_models(self, Path(path))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: no such file, or another result's.
        """
        return cls(*read_models(Path(path)))

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """The matrix as a heat map, a row and a column a model; ``width`` in inches."""
        from .figure import draw_models

        return draw_models(self, width, title)
