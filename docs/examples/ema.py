"""An average over rounds: an exponential mean of the global models."""

from dataclasses import dataclass

import numpy as np

from fedscope.methods import Averaged, AverageMethod, Weights, setting


@dataclass(frozen=True)
class EMA(AverageMethod):
    """m_t = d m_{t−1} + (1 − d) w_t with m_1 = w_1, all [P]; clients never start from it."""

    decay: float = setting(0.9, "d: how much of the last mean is kept", least=0, below=1)

    def average(self, state, round, global_, history):
        now = global_.parameters.astype(np.float64)
        mean = self.decay * state["mean"] + (1 - self.decay) * now if state else now
        averaged = Weights(global_.layout, mean.astype(global_.layout.dtype), global_.buffers)
        return Averaged(averaged, {"mean": mean})

    def recover(self, round, history):
        mean = history.row(1).parameters.astype(np.float64)
        for t in range(2, round + 1):
            mean = self.decay * mean + (1 - self.decay) * history.row(t).parameters
        return {"mean": mean}

    def reaches_back(self):
        return 0
