"""The models that the clients of a personal method use themselves after a recorded round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...checkpoints import Run, Weights
from ...training.loop.personalized import PersonalizedModels
from ..draws.given_code import refuse_ungiven
from ..draws.replay import Replayer

if TYPE_CHECKING:
    from torch import nn

    from ...analysis.settings import EvaluationConfig
    from ...training import Dataset


def own_models(
    run: Run, number: int, dataset: Dataset, source: EvaluationConfig, module: nn.Module | None = None
) -> Sequence[Weights]:
    """Return the personal models of a round's clients, in the order of its ``client_ids``: made of what they keep after
    the round and the model that it deploys, as the run itself made them for ``client_test_error_mean``.

    Args:
        module: the run's architecture, where the run only names that.

    Raises:
        FedscopeError: code of the user's own that was not given; a state that the recording policy has left out.
    """
    round_ = run.round(number)
    refuse_ungiven(run, source.code, changed=source.code_changed, rounds=[number], otherwise="")
    replayer = Replayer.of(
        run, dataset, compute=source.compute, code=source.code, code_changed=source.code_changed, module=module
    )
    federation, tasks = replayer.work_of(round_, surveyed=False)
    deployed = round_.read("averaged" if "averaged" in round_.models else "global")
    states = {name: round_.client_state(name) for name in round_.client_states}
    return PersonalizedModels(federation, number, deployed, states, round_.client_ids).made(tasks)
