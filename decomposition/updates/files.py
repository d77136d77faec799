"""The geometry of updates as a netCDF file; names of variables are fixed, because other programs rely on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import Variable
from ...landscape.storing import read_result, write_result

if TYPE_CHECKING:
    from .result import ClientUpdates

KIND = "geometry-of-updates"
_CLIENTS = {
    "weights": ("weight of the client in the mean", "1"),
    "norm": ("L2 norm of the update", "1"),
}
_NUMBERS = {
    "cosine_mean": ("mean cosine over pairs of clients that moved", "1"),
    "cosine_stderr": ("its standard error, jackknife over clients", "1"),
    "cosine_min": ("least cosine of a pair", "1"),
    "cosine_max": ("greatest cosine of a pair", "1"),
    "mean_norm": ("weighted mean of the updates' L2 norms", "1"),
    "norm_of_mean": ("L2 norm of the weighted mean update", "1"),
    "orthogonal": ("norm_of_mean / mean_norm if the updates were orthogonal", "1"),
    "diversity": ("weighted gradient diversity", "1"),
}


def write_updates(result: ClientUpdates, path: Path) -> None:
    """Write dimensions ``round``, ``client`` and ``client2``, padded to the largest cohort."""
    rounds = result.rounds
    most = max(len(one.client_ids) for one in rounds)
    ids = np.full((len(rounds), most), -1, np.int64)
    cosine = np.full((len(rounds), most, most), np.nan)
    of_clients = {name: np.full((len(rounds), most), np.nan) for name in _CLIENTS}
    for i, one in enumerate(rounds):
        size = len(one.client_ids)
        ids[i, :size], cosine[i, :size, :size] = one.client_ids, one.cosine
        for name, values in of_clients.items():
            values[i, :size] = getattr(one, name)
    variables: dict[str, Variable] = {
        "client_ids": (("round", "client"), ids, {"long_name": "client, -1 for none"}),
        "cosine": (("round", "client", "client2"), cosine, {"long_name": "cosine of two updates", "units": "1"}),
    }
    for name, (words, units) in _CLIENTS.items():
        variables[name] = (("round", "client"), of_clients[name], {"long_name": words, "units": units})
    for name, (words, units) in _NUMBERS.items():
        numbers = np.array([getattr(one, name) for one in rounds], np.float64)
        variables[name] = (("round",), numbers, {"long_name": words, "units": units})
    coords: dict[str, Variable] = {
        "round": (("round",), np.array([one.round for one in rounds], np.int64), {"long_name": "round"})
    }
    write_result(path, KIND, coords, variables, result.attrs)


def read_updates(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every round's values by name, without the padding, and the attributes."""
    values, attrs = read_result(path, KIND, ("round", "client_ids", "cosine", *_CLIENTS, *_NUMBERS))
    rounds = []
    for i, number in enumerate(values["round"]):
        there = values["client_ids"][i] >= 0
        one: dict[str, Any] = {"round": int(number), "client_ids": values["client_ids"][i][there]}
        one["cosine"] = values["cosine"][i][np.ix_(there, there)]
        one |= {name: values[name][i][there] for name in _CLIENTS}
        one |= {name: float(values[name][i]) for name in _NUMBERS}
        rounds.append(one)
    return rounds, attrs
