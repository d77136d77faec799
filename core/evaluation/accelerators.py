"""What torch can compute on here beside the processor: names, memory and waiting, the same for every kind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..checkpoints import FedscopeError

#: the environment variable that says what ``auto`` is
DEFAULT = "FEDSCOPE_DEVICE"
#: kinds that a device's name may begin with; a backend that torch got from elsewhere answers to its own name, too
KINDS = ("cpu", "cuda", "mps", "xpu")
#: how torch and the libraries below it say that memory has run out, where they raise a plain RuntimeError
_OUT_OF_MEMORY = (
    "out of memory",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "miopenStatusAllocFailed",
)


def resolve_device(device: str) -> str:
    """Return the device's name, ``auto`` resolved.

    ``auto`` is the device that the environment variable :data:`DEFAULT` names. Without it, it is the accelerator that
    torch sees, if it has float64, which sums of losses need; else ``cpu``. So a Mac's ``mps`` is taken where it is
    asked for alone.

    Raises:
        FedscopeError: no name of a device, or one that torch cannot compute on here; names those that are here.

    >>> resolve_device("cpu")
    'cpu'
    """
    if device == "cpu":
        return device
    import torch

    if device == "auto":
        if (known := os.environ.get(DEFAULT, "auto")) != "auto":
            return _known_device(known)
        kind = accelerator()
        return kind if kind is not None and has_float64(kind) else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    own = accelerator()
    if kind not in KINDS and (kind != own or not kind):
        raise FedscopeError(
            f"device = {device!r} is not a device; use auto, {', '.join(KINDS)}, or one's number: cuda:1"
        )
    if kind not in ("cpu", own):
        raise FedscopeError(
            f"device = {device!r}, but torch {torch.__version__} sees no {kind.upper()} device here; there "
            f"{_are(devices())}; use --device {own or 'cpu'}"
        )
    number = torch.device(device).index
    if kind == own and number is not None and number >= torch.accelerator.device_count():
        raise FedscopeError(f"device = {device!r} is not here; there {_are(devices())}; use --device {own}")
    try:
        torch.empty(1, device=device)
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise FedscopeError(
            f"device = {device!r} cannot be used now ({why}); there {_are(devices())}; --device cpu always can"
        ) from None
    return device


def resolve_devices(names: str) -> tuple[str, ...]:
    """Return the names of one device or several, as of ``cuda:0,cuda:1``, ``auto`` resolved.

    Raises:
        FedscopeError: what :func:`resolve_device` refuses; devices of several kinds, or one of them twice.

    >>> resolve_devices("cpu")
    ('cpu',)
    """
    known = os.environ.get(DEFAULT, "")
    if names == "auto" and "," in known:
        names = known
    found = tuple(resolve_device(name.strip()) for name in names.split(","))
    if len(found) == 1:
        return found
    kinds = {name.partition(":")[0] for name in found}
    if len(kinds) > 1:
        raise FedscopeError(
            f"device = {names!r} names devices of {len(kinds)} kinds, and all must give the same numbers; name those "
            f"of one kind, as {_example(found)}"
        )
    numbers = [_number(name) for name in found]
    twice = next((name for k, name in enumerate(found) if numbers[k] in numbers[:k]), None)
    if twice is not None:
        raise FedscopeError(f"device = {names!r} names {twice} twice; name each device once")
    return found


def _number(name: str) -> int:
    """Return a device's number; of a name without one that of the device that torch takes then."""
    import torch

    number = torch.device(name).index
    if number is not None:
        return int(number)
    return 0 if name == "cpu" else int(torch.accelerator.current_device_index())


def _example(found: tuple[str, ...]) -> str:
    kind = next(name for name in found if not name.startswith("cpu")).partition(":")[0]
    return ",".join(name for name in found if name.startswith(kind))


def _known_device(known: str) -> str:
    """Return the device that the environment names. Raises as :func:`resolve_device`."""
    try:
        return resolve_device(known)
    except FedscopeError as error:
        raise FedscopeError(str(error).replace("device = ", f"{DEFAULT} = ", 1)) from None


def accelerator() -> str | None:
    """Return the kind of accelerator that torch sees here: ``cuda``, ``mps``, ``xpu``, or None."""
    import torch

    if not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type


def devices() -> list[str]:
    """Return the names of the devices that are here, the processor first.

    >>> devices()[0]
    'cpu'
    """
    import torch

    kind = accelerator()
    if kind is None:
        return ["cpu"]
    count = torch.accelerator.device_count()
    return ["cpu", *([kind] if count == 1 else [f"{kind}:{number}" for number in range(count)])]


def _are(names: list[str]) -> str:
    return f"is {names[0]}" if len(names) == 1 else f"are {' and '.join([', '.join(names[:-1]), names[-1]])}"


def has_float64(device: str) -> bool:
    """Check whether a device computes in float64, as Apple's do not.

    >>> has_float64("cpu")
    True
    """
    import torch

    if device.startswith("cpu"):
        return True
    try:
        torch.empty(1, dtype=torch.float64, device=device).add_(1)
    except (TypeError, RuntimeError):
        return False
    return True


def synchronize(device: str) -> None:
    """Wait until a device has done what it was given; a processor always has."""
    if device.startswith("cpu"):
        return
    import torch

    torch.accelerator.synchronize(torch.device(device))


def device_name(device: str) -> str:
    """Return what a device calls itself, or its name here where it does not say."""
    import torch

    properties = getattr(getattr(torch, torch.device(device).type, None), "get_device_name", None)
    return str(properties(device)) if callable(properties) else device


def empty_cache(device: str) -> None:
    """Give back what torch holds of a device's memory without using it."""
    import torch

    if device.startswith("cpu"):
        return
    gc.collect()
    module: Any = getattr(torch, torch.device(device).type, None)
    if callable(release := getattr(module, "empty_cache", None)):
        release()


def is_out_of_memory(error: BaseException) -> bool:
    """Check whether an exception says that memory has run out: torch's own, or a library's plain RuntimeError.

    >>> is_out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")), is_out_of_memory(RuntimeError("no"))
    (True, False)
    """
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _OUT_OF_MEMORY)


@contextmanager
def refuse_without_memory(
    device: str, doing: str, remedy: str = "free some of it, or give --device cpu"
) -> Iterator[None]:
    """Turn running out of memory within into one sentence.

    Args:
        doing: what the memory is for, as in ``load the samples of digits/test``.

    Raises:
        FedscopeError: memory has run out.

    >>> with refuse_without_memory("cuda", "hold 3 models"):
    ...     raise RuntimeError("CUDA error: out of memory")
    Traceback (most recent call last):
    fedscope.checkpoints.io.errors.FedscopeError: cuda has no memory left to hold 3 models; free some of it, ...
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise FedscopeError(f"{device} has no memory left to {doing}; {remedy}") from None
