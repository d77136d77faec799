"""Where numbers are computed, and in which arithmetic: one answer for evaluation, analyses and training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from ...checkpoints import FedscopeError

PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class Compute:
    """A device, the arithmetic of products, and how many threads.

    Attributes:
        device: ``cpu``, ``cuda`` or ``cuda:1``; ``auto`` becomes ``cuda`` where there is one, else ``cpu``.
        precision: ``float32`` (TF32 off), ``tf32`` or ``bf16`` (autocast).
        workers: threads, by default one a core; on a GPU always one. No number depends on it.

    Raises:
        FedscopeError: a device that this machine does not have, an unknown precision.

    >>> Compute(workers=2)
    Compute(device='cpu', precision='float32', workers=2)
    """

    device: str = "cpu"
    precision: str = "float32"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise FedscopeError(f"precision {self.precision!r} is unknown; take one of {', '.join(PRECISIONS)}")
        object.__setattr__(self, "device", _found(self.device))
        if self.is_gpu:
            object.__setattr__(self, "workers", 1)

    @property
    def is_gpu(self) -> bool:
        """Whether this is an accelerator, where one worker does all."""
        return not self.device.startswith("cpu")

    @property
    def exact(self) -> Compute:
        """The same in float32."""
        return replace(self, precision="float32")

    @contextmanager
    def products(self) -> Iterator[None]:
        """Float32 products are float32: on a GPU TF32 is on for ``tf32`` only, though torch has it on for
        convolutions. Nothing to do on a CPU."""
        if not self.is_gpu:
            yield
            return
        import torch

        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark
        matmul.allow_tf32 = cudnn.allow_tf32 = self.precision == "tf32"
        cudnn.deterministic, cudnn.benchmark = True, False  # the same numbers in a resumed run
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before

    def forward(self) -> AbstractContextManager[None]:
        """Autocast for a forward pass in ``bf16``, nothing for the others."""
        import torch

        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.precision == "bf16")


def _found(device: str) -> str:
    """The device's name with ``auto`` resolved, if torch can compute there."""
    if device == "cpu":
        return device
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise FedscopeError(f"device = {device!r} is not a device; use auto, cpu or cuda") from None
    if kind not in ("cpu", "cuda"):
        raise FedscopeError(f"device = {device!r} is not supported; use auto, cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise FedscopeError(
            f"device = {device!r}, but torch {torch.__version__} sees no CUDA device here; use --device cpu"
        )
    try:
        torch.empty(1, device=device)
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise FedscopeError(f"device {device!r} cannot be used here ({why}); --device cpu always can") from None
    return device


#: every core in float32: what functions take where nothing else is said
CPU = Compute()
