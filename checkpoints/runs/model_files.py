"""Models written to files of the user's choice, and over none of a run's own."""

from __future__ import annotations

from pathlib import Path

from ..io.untrusted import expand_home
from ..models.files import WRITTEN, write_model
from ..models.weights import Weights
from .folders import refuse_own_place


def write_file(path: Path | str, weights: Weights) -> None:
    """Write one model [P] as ``.safetensors``, ``.pt`` or ``.pth`` (a ``state_dict``), durably; adapters as PEFT reads
    them, see :func:`~fedscope.checkpoints.models.peft_names.names_to_write`.

    Each tensor is written in the type that it was recorded or read in, where that has all of its values: a mean of
    models in bfloat16 has others, and a warning says that it is written in the type that it was computed in.

    Raises:
        FedscopeError: another kind of file; several models; a place of a run's own files; nothing could be written,
            with the reason.
    """
    place = expand_home(path)
    if place.suffix.lower() in WRITTEN:  # else the ending is what is wrong, and no name with it is offered
        refuse_own_place(place)
    write_model(place, weights)
