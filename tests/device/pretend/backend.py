"""What ``torch.pretend`` is: the functions that torch asks of an outside backend, and the usual ones."""

from __future__ import annotations

from typing import Any

from .native import NAME, loaded


class Backend:
    """What ``torch.pretend`` is: the functions that torch asks of an outside backend, and the usual ones."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def _lazy_init() -> None:
        """Nothing is left to do."""

    @staticmethod
    def device_count() -> int:
        return 2

    @staticmethod
    def current_device() -> int:
        return int(loaded().current())

    @staticmethod
    def set_device(device: Any) -> None:
        import torch

        loaded().set_current(device if isinstance(device, int) else torch.device(device).index or 0)

    @staticmethod
    def get_device_name(device: Any = None) -> str:
        return "a pretend accelerator"

    @staticmethod
    def get_amp_supported_dtype() -> list[Any]:
        import torch

        return [torch.float16, torch.bfloat16]

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        for index in range(2):
            loaded().default_draws(index).manual_seed(seed)

    manual_seed = manual_seed_all

    @staticmethod
    def get_rng_state(device: Any = NAME) -> Any:
        import torch

        return loaded().default_draws(torch.device(device).index or 0).get_state()

    @staticmethod
    def set_rng_state(state: Any, device: Any = NAME) -> None:
        import torch

        loaded().default_draws(torch.device(device).index or 0).set_state(state)

    @staticmethod
    def synchronize(device: Any = None) -> None:
        import torch

        torch.accelerator.synchronize()

    @staticmethod
    def empty_cache() -> None:
        """There is none."""

    @staticmethod
    def memory_allocated(device: Any = None) -> int:
        return int(loaded().held())

    @staticmethod
    def max_memory_allocated(device: Any = None) -> int:
        return int(loaded().greatest())

    @staticmethod
    def reset_peak_memory_stats(device: Any = None) -> None:
        loaded().reset_greatest()
