"""What keywords, papers and other programs call the settings of a run; nothing is loaded for that."""

from __future__ import annotations

from collections.abc import Mapping

#: keywords that are another name for a setting, as the flags of ``fedscope train`` are
KEYWORDS: Mapping[str, str] = {
    "clients": "data.clients",
    "participation": "run.participation",
    "rounds": "run.rounds",
    "epochs": "client.epochs",
    "batch": "client.batch",
    "lr": "client.lr",
    "seed": "run.seed",
    "device": "run.device",
}
#: what other programs and papers call a setting
ALSO: Mapping[str, str] = {
    "learning_rate": "client.lr",
    "local_lr": "client.lr",
    "eta": "client.lr",
    "lr_local": "client.lr",
    "wd": "client.weight_decay",
    "optimizer": "client.optimiser",
    "batch_size": "client.batch",
    "local_bs": "client.batch",
    "bs": "client.batch",
    "local_epochs": "client.epochs",
    "local_ep": "client.epochs",
    "num_clients": "data.clients",
    "num_users": "data.clients",
    "n_clients": "data.clients",
    "num_rounds": "run.rounds",
    "n_rounds": "run.rounds",
    "comm_round": "run.rounds",
    "communication_rounds": "run.rounds",
    "global_rounds": "run.rounds",
    "global_epochs": "run.rounds",
    "cohort": "run.participation",
    "frac": "run.participation",
    "fraction": "run.participation",
    "join_ratio": "run.participation",
    "sample_rate": "run.participation",
    "participation_rate": "run.participation",
    "dataset": "data.name",
    "gpu": "run.device",
    "cuda": "run.device",
}


def plain_name(name: str) -> str:
    """``local_epochs`` of ``local-epochs`` or ``Local_Epochs``."""
    return name.replace("-", "_").lower()
