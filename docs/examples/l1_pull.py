"""A client method: FedProx's idea with another norm."""

from dataclasses import dataclass
from typing import ClassVar

from fedscope.methods import ClientMethod, local_sgd, setting


@dataclass(frozen=True)
class L1Pull(ClientMethod):
    """Local SGD on the loss + μ‖θ − w‖₁, so g ← g + μ sign(θ − w), all [P]; w is the model that was sent."""

    vectorised: ClassVar[bool] = True  # its arithmetic also holds for several clients at once, [C, P]
    proximal: ClassVar[bool] = True

    mu: float = setting(0.001, "μ: strength of the pull towards w", above=0)

    def train(self, task):
        start = task.place.tensor(task.start.parameters)
        return local_sgd(task, self, correct=lambda w, g: g.add_((w - start).sign(), alpha=self.mu))
