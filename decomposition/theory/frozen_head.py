"""The head of a model in rounds whose clients never moved it, as FedBABU's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoints import Run

if TYPE_CHECKING:
    from torch import nn

    from ...analysis.settings import EvaluationConfig


def frozen_head(run: Run, round: int, module: nn.Module) -> frozenset[str]:
    """Name the head's parameters, under all their names, where the client method that made a round freezes the head;
    none where it trains it, and where another program recorded the run.

    The module marks nothing of it: it is the method that keeps them as they are.
    """
    if run.config is None:
        return frozenset()
    from ...training import config_at
    from ...training.build import model_info

    config = config_at(run, round)
    if not config.client.freezes_head:
        return frozenset()
    facts = model_info(config, module, 0)
    return frozenset(name for own in facts.head_parameters for name in facts.tied.get(own, (own,)))


def with_given_code(run: Run, source: EvaluationConfig) -> Run:
    """Return a run with the code of the user's own that was given, which says whether it freezes the head.

    Raises:
        FedscopeError: code that nothing asks for.
    """
    if run.is_foreign or not source.code:
        return run
    from ...training.user_code.kept_source import playing
    from ...training.user_code.provided_code import code_of_objects

    given, _ = playing(run, code_of_objects(source.code), changed=source.code_changed, all_=False, rounds=())
    return given
