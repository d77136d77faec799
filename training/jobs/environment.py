"""Environments of numbers: jobs compute with the versions that they were sent with, or not at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ...results.versions import versions

#: of these a job has the versions of the command that sent it
SAME = ("fedscope", "torch", "numpy")


@dataclass(frozen=True)
class Environment:
    """The environment that a run's bits depend on: versions and instructions of the processor.

    Attributes:
        versions: of fedscope, torch, numpy and python.
        capability: which instructions torch uses on this processor (``DEFAULT``, ``AVX2``, ``AVX512``).
    """

    versions: Mapping[str, str]
    capability: str

    @classmethod
    def here(cls) -> Self:
        """Of this process and this processor. torch is asked in a process of its own where it is not loaded, so that
        one that only waits does not hold it."""
        if "torch" in sys.modules:
            import torch

            return cls(versions(), torch.backends.cpu.get_cpu_capability())
        code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
        asked = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
        return cls(versions(), asked.stdout.strip() or "unknown")

    def refusal(self, here: Environment) -> str | None:
        """Describe why a job that was sent from here must not compute there; None where it may.

        >>> sent, there = (Environment({"fedscope": v, "torch": "2", "numpy": "2"}, "AVX2") for v in ("0.1", "0.2"))
        >>> sent.refusal(there)
        'the job was sent by fedscope 0.1 but finds fedscope 0.2; give the same command again where both are the same'
        """
        for name in SAME:
            sent, found = self.versions.get(name), here.versions.get(name)
            if sent != found:
                return (
                    f"the job was sent by {name} {sent} but finds {name} {found}; give the same command again where "
                    "both are the same"
                )
        return None

    def caution(self, name: str, capability: str) -> str | None:
        """Describe that a job ran on another kind of processor; None where it is of the same.

        >>> Environment({}, "AVX2").caution("fma", "AVX512")
        'fma was computed with AVX512, and here is AVX2: its last bits may differ from those that this machine gives'
        """
        if capability in (self.capability, ""):
            return None
        return (
            f"{name} was computed with {capability}, and here is {self.capability}: its last bits may differ from "
            "those that this machine gives"
        )
