"""``fedscope check-method``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..printing import say, say_json

if TYPE_CHECKING:
    from ...training.method_checks.outcome import Line


@click.command(
    "check-method",
    epilog="Example:  fedscope check-method fedx:FedX    Of one check:  fedscope check-method fedavgm --only order",
)
@click.argument("method", metavar="NAME")
@click.option(
    "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="A setting of the federation; repeatable."
)
@click.option("--only", multiple=True, metavar="CHECK", help="Ask this check alone, such as resume; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(method: str, assignments: tuple[str, ...], only: tuple[str, ...], as_json: bool) -> None:
    """Check that a method is well-behaved: a client method, a server method or an average over rounds.

    NAME is your own module:Class, which is imported, or a built-in method. It is played on a tiny federation of the
    embedded digits, in less than a minute: the same bits with the same seed, with other workers, resumed and replayed;
    with every other method; clients in another order, of weight 0, NaN; what it is given, which stays as it was; and
    what its class says of it. A line per check says what was measured. Ends with 2 if one fails.
    """
    from ...checkpoints import FedscopeError
    from ...testing import check_method

    settings: dict[str, Any] = {}
    if assignments:
        from ...training.config.config import read_assignments

        settings = read_assignments(assignments, "server.lr=0.5")

    def tell(line: Line) -> None:
        if not as_json:
            say(str(line))

    report = check_method(method, settings=settings, only=only or None, tell=tell)
    if as_json:
        say_json(
            {
                "method": report.method,
                "passed": report.passed,
                "failed": list(report.failed),
                "checks": [
                    {
                        "kind": line.kind,
                        "check": line.check,
                        "outcome": line.outcome,
                        "words": line.words,
                        "seconds": round(line.seconds, 3),
                    }
                    for line in report.lines
                ],
            }
        )
    else:
        say(report.summary())
    if report.failed:
        raise FedscopeError(report.refusal())
