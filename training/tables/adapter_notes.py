"""What is to be known of a table whose runs are of adapters that do not go together."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from ...checkpoints import FedscopeError, FedscopeWarning
from ...checkpoints.models.adapters import ABOUT_BOTH, refuse_other_scale, settings_of_run
from .table_runs import TableRun


def adapter_notes(entries: Sequence[TableRun]) -> list[str]:
    """Say which runs' adapters are scaled otherwise than the first one's, or adapt other weights."""
    told = [
        (entry.name, settings)
        for entry in entries
        if entry.run is not None and (settings := settings_of_run(entry.run.info))
    ]
    notes = []
    for name, settings in told[1:]:
        with warnings.catch_warnings(record=True) as unsure:
            warnings.simplefilter("always", FedscopeWarning)
            try:
                refuse_other_scale(*told[0], name, settings)
            except FedscopeError as error:
                notes.append(ABOUT_BOTH.split(str(error))[0])
        notes += [str(one.message).partition(";")[0] for one in unsure]
    return list(dict.fromkeys(notes))
