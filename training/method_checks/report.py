"""What ``check_method`` returns."""

from __future__ import annotations

from dataclasses import dataclass

from ...checkpoints.io.errors import list_few
from ...checkpoints.io.repr_screen import screen
from .outcome import Line


@dataclass(frozen=True, repr=False)
class MethodReport:
    """What the checks of a method found.

    Attributes:
        method: its name.
        lines: one a check, with ``check``, ``outcome`` (``passed``, ``failed`` or ``not asked``), ``words`` and
            ``seconds``.
    """

    method: str
    lines: tuple[Line, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return tuple(dict.fromkeys(line.check for line in self.lines if line.outcome == "failed"))

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not self.failed

    @property
    def seconds(self) -> float:
        """How long the checks took."""
        return sum(line.seconds for line in self.lines)

    def summary(self) -> str:
        """Say in a sentence how the checks ended."""
        passed, failed, rest = (
            sum(line.outcome == which for line in self.lines) for which in ("passed", "failed", "not asked")
        )
        if failed:
            return f"{self.method}: {passed} checks passed and {failed} failed ({', '.join(self.failed)})"
        return f"{self.method}: all {passed} checks passed" + (f"; {rest} do not concern it" if rest else "")

    def raise_for_failures(self) -> None:
        """For a test of one's own.

        Raises:
            AssertionError: names the checks that failed, with what was measured.
        """
        if self.failed:
            raise AssertionError(
                "\n".join([self.summary(), *(str(line) for line in self.lines if line.outcome == "failed")])
            )

    def refusal(self) -> str:
        """Say in a sentence which checks failed, and where to look."""
        return (
            f"{self.method} fails {list_few(self.failed, 12)}; the lines above say what was measured, and --only "
            f"{self.failed[0]} asks again"
        )

    def __repr__(self) -> str:
        head = f"MethodReport of {self.method}: {'passed' if self.passed else 'FAILED ' + ', '.join(self.failed)}"
        order = {"failed": 0, "passed": 1, "not asked": 2}
        told = sorted(self.lines, key=lambda line: order[line.outcome])
        return screen(head, map(_short, told), ["lines", "failed", "raise_for_failures()"])


def _short(line: Line) -> str:
    text = str(line)
    return text if len(text) <= 97 else text[:94] + "..."
