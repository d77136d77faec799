"""What a file of one adapter cannot say: by what the products of its factors are scaled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .adapters import factors_in, rank_of, scale_beside
from .weights import Layout

#: settings by which a scale is another than α/r of all layers
_OTHERWISE = ("alpha_pattern", "rank_pattern", "use_rslora", "use_dora")


def unsaid_scale(file: Path | str, layout: Layout, settings: Mapping[str, Any], place: Path | None = None) -> str:
    """Return the sentence on a file that holds factors alone; "" of other models, and where their scale is not known.

    Args:
        file: what is written, for the sentence.
        settings: of the adapters, as ``run.json`` or an ``adapter_config.json`` says them.
        place: where the file lies; nothing is unsaid where an ``adapter_config.json`` beside it says it.

    >>> from fedscope.checkpoints.models.weights import TensorEntry
    >>> entry = TensorEntry("q.lora_A.weight", (2, 4), "float32", "parameter")
    >>> unsaid_scale("a.pt", Layout((entry,)), {"lora_alpha": 16})
    'a.pt holds factors of adapters without their scale alpha/r = 16/2; give its import --lora-alpha 16'
    """
    alpha = settings.get("lora_alpha", settings.get("alpha"))
    if not alpha or not factors_in(layout.names) or (place is not None and scale_beside(place)):
        return ""
    if isinstance(alpha, Mapping) and len(set(alpha.values())) == 1:  # every layer's own, which is the same
        (alpha,) = set(alpha.values())
    ranks = {rank_of(entry.name, entry.shape) for entry in layout.entries} - {None}
    if isinstance(alpha, Mapping) or len(ranks) != 1 or any(settings.get(name) for name in _OTHERWISE):
        return (
            f"{file} holds factors of adapters without their scales, which differ by layer or are not alpha/r; put an "
            "adapter_config.json that says them beside it"
        )
    return (
        f"{file} holds factors of adapters without their scale alpha/r = {alpha:g}/{ranks.pop()}; give its import "
        f"--lora-alpha {alpha:g}"
    )
