"""Cohorts of one client, whose model is the average."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoints.io.warn_user import warn_user
from ..rng import cohort_size

if TYPE_CHECKING:
    from ..config.config import Config


def warn_of_one_client(config: Config) -> None:
    """Say that nothing is averaged where a round has one of several clients: with the default participation, a tenth,
    that is so for fewer than 15 of them."""
    clients, share = config.data.clients, config.run.participation
    if clients < 2 or cohort_size(clients, share) > 1:
        return
    warn_user(
        f"run.participation = {share:g} of {clients} clients is one client a round, so that no clients are averaged; "
        f"give a larger one, as run.participation={min(1.0, 4 / clients):.2g}"
    )
