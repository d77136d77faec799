"""The device on which a run goes on: the one that it has, or another of its kind."""

from __future__ import annotations

from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.code_words import code_words
from ...checkpoints.io.shell_words import command_line
from ...evaluation.accelerators import devices
from ...evaluation.device import Compute


def device_to_resume(run: Run, trained: str, asked: str | None) -> str:
    """Return the device or devices on which a run goes on.

    Args:
        trained: those of the run's settings, as ``cuda:0`` or ``cuda:0,cuda:1``.
        asked: another one of their kind, or None.

    Raises:
        FedscopeError: a device that is not here or cannot be used now; one of another kind.
    """
    kind = _kind(trained)
    if asked is not None:
        if Compute(asked).kind != kind:
            raise FedscopeError(
                f"--device {asked} is of another kind than {trained}, on which {run.path} was trained, and rounds "
                f"differently; {_anew(run, asked)}"
            )
        return asked
    try:
        Compute(trained)
    except FedscopeError as error:
        there = devices()
        if not any(_kind(name) == kind for name in there):
            raise FedscopeError(
                f"{run.path} was trained on {trained}, and here {'is' if len(there) == 1 else 'are'} "
                f"{', '.join(there)}; go on where a {kind} device is, or {_anew(run, there[-1])}"
            ) from None
        raise FedscopeError(
            f"{run.path} was trained on {trained}, not all of which can be used here ({str(error).partition(';')[0]}); "
            f"give --device with those of {', '.join(name for name in there if _kind(name) == kind)} that can be used"
        ) from None
    return trained


def _anew(run: Run, device: str) -> str:
    """What to do with another kind of device."""
    if not run.rounds:
        anew = command_line("train", run.path / "config.toml", *code_words(run.info, run.config), "--device", device)
        return f"train it there from its beginning: {anew}"
    branch = command_line("train", "--from", f"{run.path}@last", *code_words(run.info, run.config), "--device", device)
    return f"train on from its rounds in a run of its own: {branch}"


def _kind(names: str) -> str:
    return names.partition(",")[0].partition(":")[0].strip()
