"""Similarities as netCDF files; names of variables are fixed, because other programs rely on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import Variable
from ...landscape.storing import read_result, write_result

if TYPE_CHECKING:
    from .result import ClientCKA, ModelCKA

CLIENTS, MODELS = "cka", "cka-models"
_MEANS = ("mean", "mean_stderr", "mean_global", "mean_global_stderr")
# which results from before it existed lack
_ERROR = "test_error"
_ABOUT = {
    "cka": "linear CKA between clients",
    "cka_global": "linear CKA with the global model of the round",
    "mean": "mean CKA over pairs of clients",
    "mean_stderr": "standard error of the mean, jackknife over minibatches",
    "mean_global": "mean CKA of clients with the global model",
    "mean_global_stderr": "its standard error, jackknife over minibatches",
    "test_error": "test error of the global model, measured while training",
}


def write_clients(result: ClientCKA, path: Path) -> None:
    """Write clients over rounds: dimensions ``round``, ``client`` and ``client2``, padded to the largest cohort."""
    rounds = result.rounds
    most = max(len(one.client_ids) for one in rounds)
    ids = np.full((len(rounds), most), -1, np.int64)
    cka, cka_global = np.full((len(rounds), most, most), np.nan), np.full((len(rounds), most), np.nan)
    for i, one in enumerate(rounds):
        size = len(one.client_ids)
        ids[i, :size], cka[i, :size, :size], cka_global[i, :size] = one.client_ids, one.cka, one.cka_global
    values: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "cka": (("round", "client", "client2"), cka),
        "cka_global": (("round", "client"), cka_global),
        **{name: (("round",), np.array([getattr(one, name) for one in rounds])) for name in (*_MEANS, _ERROR)},
    }
    variables: dict[str, Variable] = {
        "client_ids": (("round", "client"), ids, {"long_name": "client, -1 for none"}),
        **{name: (dims, array, {"long_name": _ABOUT[name], "units": "1"}) for name, (dims, array) in values.items()},
    }
    numbers = np.array([one.round for one in rounds], np.int64)
    coords: dict[str, Variable] = {"round": (("round",), numbers, {"long_name": "round"})}
    write_result(path, CLIENTS, coords, variables, result.attrs)


def read_clients(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every round's values by name, without the padding, and the attributes."""
    needed = ("round", "client_ids", "cka", "cka_global", *_MEANS)
    values, attrs = read_result(path, CLIENTS, needed, (_ERROR,))
    rounds = []
    for i, number in enumerate(values["round"]):
        there = values["client_ids"][i] >= 0
        own = {name: float(values[name][i]) for name in (*_MEANS, _ERROR) if name in values}
        matrix = values["cka"][i][np.ix_(there, there)]
        ids = values["client_ids"][i][there]
        rounds.append(
            {
                "round": int(number),
                "client_ids": ids,
                "cka": matrix,
                "cka_global": values["cka_global"][i][there],
                **own,
            }
        )
    return rounds, attrs


def write_models(result: ModelCKA, path: Path) -> None:
    """Write several models: dimensions ``model`` and ``model2``."""
    about = {"long_name": "linear CKA between models", "units": "1"}
    spread = {"long_name": "standard error of CKA, jackknife over minibatches", "units": "1"}
    variables: dict[str, Variable] = {
        "model_label": (("model",), np.array(result.labels, dtype=object), {"long_name": "model"}),
        "cka": (("model", "model2"), result.cka, about),
        "cka_stderr": (("model", "model2"), result.cka_stderr, spread),
    }
    write_result(path, MODELS, {}, variables, result.attrs)


def read_models(path: Path) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, dict[str, Any]]:
    """Labels, CKA, its standard errors, and the attributes."""
    values, attrs = read_result(path, MODELS, ("model_label", "cka", "cka_stderr"))
    return tuple(map(str, values["model_label"])), values["cka"], values["cka_stderr"], attrs
