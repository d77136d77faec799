"""What methods, models and partitions of one's own are made of, in one place that stays.

A method is a frozen dataclass that derives from :class:`ClientMethod`, :class:`ServerMethod` or :class:`AverageMethod`.
Its fields are its settings (:func:`setting`); its functions take state and return it. ``fedscope new server fedx``
writes one to begin with, ``fedscope check-method fedx:FedX`` says whether it is well-behaved.

>>> from dataclasses import dataclass
>>> from fedscope.methods import Served, ServerMethod, mean_update, setting
>>> @dataclass(frozen=True)
... class HalfStep(ServerMethod):
...     '''w⁺ = w + η mean_S(θ_i − w).'''
...     rate: float = setting(0.5, "η: the server's step", above=0)
...     def step(self, state, start, clients, cohort):
...         moved = start.parameters + self.rate * mean_update(start, clients)
...         return Served(moved.astype(start.layout.dtype))
>>> HalfStep(rate=0.25).table()
{'weighting': 'samples', 'rate': 0.25}
"""

from .checkpoints import FedscopeError as FedscopeError
from .checkpoints import Layout as Layout
from .checkpoints import Weights as Weights
from .training.data.dataset import Dataset as Dataset
from .training.data.partitioner import Partitioner as Partitioner
from .training.local.local_training import LocalTask as LocalTask
from .training.local.local_training import LocalUpdate as LocalUpdate
from .training.local.local_training import batches as batches
from .training.local.local_training import full_gradient as full_gradient
from .training.local.local_training import local_sgd as local_sgd
from .training.methods.base import Averaged as Averaged
from .training.methods.base import AverageMethod as AverageMethod
from .training.methods.base import ClientMethod as ClientMethod
from .training.methods.base import Cohort as Cohort
from .training.methods.base import Exchange as Exchange
from .training.methods.base import History as History
from .training.methods.base import LocalSchedule as LocalSchedule
from .training.methods.base import MethodInfo as MethodInfo
from .training.methods.base import Served as Served
from .training.methods.base import ServerMethod as ServerMethod
from .training.methods.base import State as State
from .training.methods.shared.server_steps import mean_update as mean_update
from .training.methods.shared.server_steps import updates as updates
from .training.methods.shared.server_steps import weighted_update as weighted_update
from .training.models.base import Architecture as Architecture
from .training.settings.settings import setting as setting

__all__ = [
    "Architecture",
    "AverageMethod",
    "Averaged",
    "ClientMethod",
    "Cohort",
    "Dataset",
    "Exchange",
    "FedscopeError",
    "History",
    "Layout",
    "LocalSchedule",
    "LocalTask",
    "LocalUpdate",
    "MethodInfo",
    "Partitioner",
    "Served",
    "ServerMethod",
    "State",
    "Weights",
    "batches",
    "full_gradient",
    "local_sgd",
    "mean_update",
    "setting",
    "updates",
    "weighted_update",
]
