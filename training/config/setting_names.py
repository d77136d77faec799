"""Names of settings without their section: as keywords have them, and as somebody types them by a slip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from ...checkpoints import nearest
from ..methods.base import AverageMethod, ClientMethod, ServerMethod
from .sections import DataConfig, RecordConfig, RunConfig

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
OF_SECTIONS: Mapping[str, type] = {
    "data": DataConfig,
    "client": ClientMethod,
    "server": ServerMethod,
    "average": AverageMethod,
    "run": RunConfig,
    "record": RecordConfig,
}


def offer_setting(name: str) -> str:
    """Offer the setting that a name without its section may mean, in a clause, or nothing.

    >>> offer_setting("lr"), offer_setting("windw"), offer_setting("xyz")
    ('; did you mean client.lr?', '; did you mean average.window?', '')
    """
    keys = {key.name: f"{section}.{key.name}" for section, kind in OF_SECTIONS.items() for key in fields(kind)}
    keys |= {"window": "average.window", **KEYWORDS}
    if name in keys:
        return f"; did you mean {keys[name]}?"
    return nearest(name, keys, keys).replace('"', "")
