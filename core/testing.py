"""Whether a method of one's own is well-behaved: for one's own tests.

>>> from fedscope.testing import check_method
>>> report = check_method("fedavgm", only=["order", "weight-0"])
>>> report.passed, report.failed
(True, ())

A test with pytest is ``check_method(FedX).raise_for_failures()``. ``fedscope check-method`` prints the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .checkpoints import FedscopeError
from .checkpoints.io.keywords import speak_keywords
from .checkpoints.io.torch_state import own_torch_state
from .training.method_checks.outcome import Line as Line
from .training.method_checks.report import MethodReport as MethodReport

__all__ = ["Line", "MethodReport", "check_method"]


@speak_keywords
@own_torch_state()
def check_method(
    method: Any,
    *,
    settings: Mapping[str, Any] | None = None,
    only: Sequence[str] | str | None = None,
    tell: Callable[[Line], None] | None = None,
) -> MethodReport:
    """Play a method on a tiny federation of the embedded digits, and measure whether it is well-behaved.

    It is trained twice with one seed, with 1 and 3 workers, interrupted and resumed, replayed, combined with every
    other method, given clients in another order, of weight 0, and NaN, and compared with what its class says of it:
    ``vectorised``, ``reads``, ``limits``, and of an average over rounds ``members``, ``begins`` and ``reaches_back``.
    What it is given must stay as it was.

    Args:
        method: a client method, a server method or an average over rounds: a class, an object with its settings, a
            built-in name (of several methods of that name each), or ``module:Class``, which is imported.
        settings: of the federation, laid over the tiny one, as for :func:`fedscope.train`: ``{"client.epochs": 2}``.
        only: names of the checks to ask; all by default.
        tell: is given each line as its check ends.

    Raises:
        FedscopeError: no method; a setting or a check that there is not; settings that choose another method in its
            place.
    """
    from .training.method_checks.resolve import chosen_methods
    from .training.method_checks.run_checks import ask_all, chosen_checks, folder
    from .training.method_checks.subject import Subject

    checks, found = chosen_checks(only), chosen_methods(method)
    lines: list[Line] = []
    for kind, name, own in found:
        with folder() as place:
            given = _with_settings(kind, own, settings or {})
            subject = Subject(kind, name, given, place, _replay)
            made = subject.config()  # a mistake in the settings is no failure of the method
            if type(getattr(made, kind)) is not subject.type:
                other = str(made.tables()[kind]["method"])
                raise FedscopeError(
                    f"the settings choose {kind}.method = {other!r} in the place of {name}, which is to be checked; "
                    "leave that out"
                )
            lines += ask_all(subject, checks, tell or (lambda line: None))
    return MethodReport(str(found[0][1]), tuple(lines))


def _with_settings(kind: str, own: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """An object's settings, with those that were given laid over them."""
    from .training.config.config import merge
    from .training.config.from_python import nested_tables

    return merge({kind: dict(own)} if own else {}, nested_tables(settings))


def _replay(run: Any, number: int, code: Mapping[str, Any]) -> Any:
    """The clients of a recorded round, trained again as the analyses do it."""
    from .decomposition.draws.replay import Replayer
    from .evaluation.device import Compute

    return Replayer.of(run, compute=Compute(workers=1), code=dict(code) or None).replay(run.round(number), 1)
