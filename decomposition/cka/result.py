"""CKA of a run's clients over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...plotting.style import describe_errors
from ...results import ArrayResult, Collection, Serializable, along, pad_cohorts
from ...results.arrays import Variable
from ...results.labels import name_of_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]

#: the layer that stands for what the module itself returns
OUTPUT = "output"

MEANS = {
    "mean": "mean CKA over pairs of clients",
    "mean_stderr": "standard error of the mean, jackknife over minibatches",
    "mean_global": "mean CKA of clients with the global model",
    "mean_global_stderr": "its standard error, jackknife over minibatches",
}
TEST_ERROR = {"test_error": "test error of the global model, measured while training"}


@dataclass(frozen=True, eq=False)
class RoundCKA(Serializable):
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
    client_ids: npt.NDArray[np.int64]
    cka: Array
    cka_global: Array
    mean: float
    mean_stderr: float
    mean_global: float = math.nan
    mean_global_stderr: float = math.nan
    test_error: float = math.nan

    @property
    def undefined(self) -> list[int]:
        """The clients for which CKA does not exist, by their ids."""
        return [int(k) for k in self.client_ids[np.isnan(np.diagonal(self.cka))]]


@dataclass(frozen=True, eq=False)
class LayersCKA(Serializable):
    """One round at each of several layers."""

    layers: tuple[RoundCKA, ...]


@dataclass(frozen=True, eq=False)
class ClientCKA(ArrayResult):
    """Similarity of a run's clients over rounds, at one layer; rounds of fewer clients are padded in its file.

    ``attrs`` is the provenance: run, layer, estimator, data, split, samples, batch, seed, device, versions.

    Raises:
        FedscopeError: no round.

    >>> import numpy as np
    >>> from fedscope.decomposition.cka.result import ClientCKA, RoundCKA
    >>> one = RoundCKA(1, np.array([3, 8]), np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([0.7, 0.9]), 0.5, 0.01, 0.8)
    >>> ClientCKA((one,), {"layer": "output"}).layer
    'output'
    """

    command = kind = "cka"
    collected = "ClientCKAs"
    needed = {
        **{"round": "round", "client_ids": "round client", "cka": "round client client2"},
        **{"cka_global": "round client", **dict.fromkeys((*MEANS, *TEST_ERROR), "round")},
    }

    rounds: tuple[RoundCKA, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rounds:
            raise FedscopeError("similarity over rounds needs a round; give at least one (--rounds last)")

    @property
    def layer(self) -> str:
        """The layer at which the models were compared."""
        return str(self.attrs.get("layer", ""))

    @property
    def run(self) -> str:
        """The run's name, "" where it is not known."""
        known = self.attrs.get("run")
        return name_of_run(known[0]) if isinstance(known, list) and known else ""

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``round``, ``client`` and ``client2``, padded to the largest cohort: ids with -1, numbers with
        NaN."""
        rounds = self.rounds
        most = max(len(round_.client_ids) for round_ in rounds)
        ids = pad_cohorts([round_.client_ids for round_ in rounds], most, -1)
        cka = pad_cohorts([round_.cka for round_ in rounds], most)
        cka_global = pad_cohorts([round_.cka_global for round_ in rounds], most)
        variables = {
            "client_ids": along("round client", ids, "client, -1 for none"),
            "cka": along("round client client2", cka, "linear CKA between clients", "1"),
            "cka_global": along("round client", cka_global, "linear CKA with the global model of the round", "1"),
        }
        for name, about in {**MEANS, **TEST_ERROR}.items():
            variables[name] = along("round", np.array([getattr(round_, name) for round_ in rounds]), about, "1")
        numbers = np.array([round_.round for round_ in rounds], np.int64)
        return {"round": along("round", numbers, "round")}, variables

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result from what :meth:`arrays` gave."""
        rounds = []
        for i, number in enumerate(values["round"]):
            there = values["client_ids"][i] >= 0
            means = {name: float(values[name][i]) for name in (*MEANS, *TEST_ERROR)}
            matrix, with_global = values["cka"][i][np.ix_(there, there)], values["cka_global"][i][there]
            rounds.append(RoundCKA(int(number), values["client_ids"][i][there], matrix, with_global, **means))
        return cls(tuple(rounds), attrs)

    def summary(self) -> str:
        """Describe the means of the first and the last round, the last one's extremes, and where CKA does not exist."""
        first, last = self.rounds[0], self.rounds[-1]
        means = [f"{cka_text(round_.mean, round_.mean_stderr)} in round {round_.round}" for round_ in (first, last)]
        where = f"{self.run}, {self.layer}" if self.run else self.layer
        sentence = f"{where}: mean CKA between clients {', '.join(means if last is not first else means[:1])}"
        if ends := extremes(last.cka, [str(k) for k in last.client_ids]):
            sentence += f" (there {ends})"
        if math.isfinite(last.mean_global):
            sentence += f"; with global {cka_text(last.mean_global, last.mean_global_stderr)}"
        sentence += describe_errors(sentence, "minibatches")
        for round_ in self.rounds:
            if round_.undefined:
                who = f"client{'s' if len(round_.undefined) > 1 else ''} {list_few(round_.undefined)}"
                sentence += f"; {undefined_words(who)} in round {round_.round}"
        return "\n".join([sentence, *self.attrs.get("left_out", ())])

    def findings(self) -> dict[str, Any]:
        """Every round's means."""
        where = {"run": self.run, "layer": self.layer}
        rounds = ({"round": round_.round, **{name: getattr(round_, name) for name in MEANS}} for round_ in self.rounds)
        return {"rounds": [{**where, **row} for row in rounds]}


class ClientCKAs(Collection[ClientCKA]):
    """Similarity of the clients of several runs, or at several layers; a figure a layer."""

    command = "cka"
    part = "ClientCKA"

    def figures(self, width: float | None = None, title: str | None = None, **drawing: Any) -> dict[str, Figure]:
        """One a layer, with all runs."""
        layers: dict[str, dict[str, ClientCKA]] = {}
        for end, part in self.parts.items():
            layers.setdefault(part.layer, {})[end] = part
        ends = zip(layer_ends(list(layers)), layers.values(), strict=True)
        return {end: type(self)(parts).figure(width, title, **drawing) for end, parts in ends}

    def findings(self) -> dict[str, Any]:
        """Every round's means."""
        return {"rounds": [row for part in self for row in part.findings()["rounds"]]}


def layer_ends(layers: Sequence[str]) -> list[str]:
    """Name each layer for files: nothing where there is only one.

    >>> layer_ends(["fc1"]), layer_ends(["fc1", "block/conv"])
    ([''], ['.fc1', '.block-conv'])
    """
    return [f".{layer.replace('/', '-')}" for layer in layers] if len(layers) > 1 else [""]


def cka_text(value: float, stderr: float) -> str:
    """``0.83 ± 0.01``; without the error where there is none.

    >>> cka_text(0.8312, 0.012), cka_text(0.8312, math.nan)
    ('0.831 ± 0.01', '0.831')
    """
    return f"{value:.3g}" + (f" ± {stderr:.1g}" if math.isfinite(stderr) else "")


def extremes(matrix: Array, names: Sequence[str]) -> str:
    """Return the least and the greatest off the diagonal and whose they are; nothing where there is no number.

    >>> extremes(np.array([[1, 0.25, 0.5], [0.25, 1, 0.75], [0.5, 0.75, 1]]), ["a", "b", "c"])
    '0.25 (a and b) to 0.75 (b and c)'
    """
    rows, columns = np.triu_indices(len(matrix), 1)
    values = matrix[rows, columns]
    if np.isnan(values).all():
        return ""
    ends = [int(np.nanargmin(values)), int(np.nanargmax(values))]
    if len(values) == 1:
        ends = ends[:1]
    return " to ".join(f"{values[k]:.3g} ({names[rows[k]]} and {names[columns[k]]})" for k in ends)


def undefined_words(who: str) -> str:
    """Say why there is no CKA."""
    return f"not defined for {who}, whose features are constant, not finite, or too noisy for so few samples"
