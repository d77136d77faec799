"""Ditto: Tian Li, Shengyuan Hu, Ahmad Beirami, Virginia Smith, "Ditto: Fair and Robust Federated Learning Through
Personalization", ICML 2021."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, MethodInfo


@dataclass(frozen=True)
class Ditto(ClientMethod):
    """Plain SGD for the federation; each client also trains its own model v, which is pulled towards the model sent.

    v ← v − η(g(v) + λ(v − w)), with w the model sent and λ ``pull``. v is the client's from its last participation; the
    first time it is w (**chosen**; the paper starts everybody from one model). What goes back is SGD's θ, bit for bit:
    v takes nothing from it and gives nothing to it.

    v takes as many epochs as θ unless ``personal_epochs`` says otherwise (**chosen**), at the round's rate, with the
    same momentum, weight decay and clip; the pull is added after clipping. Its mini-batch orders are its own: those of
    draw + 10⁹, which no replay reaches (**chosen**: the authors' code shares each batch between both).

    Li et al., ICML 2021. The paper calls λ what is ``pull`` here.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "Ditto", "Li et al., Ditto, ICML 2021", "v ← v − η(g(v) + λ(v − w)) in addition to SGD's θ", keeps="v by client"
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    personal: ClassVar[bool] = True
    own_model: ClassVar[str] = "personal"
    vectors_kept: ClassVar[int] = 1
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sgd": {}}

    pull: float = setting(
        0.001, "λ: pull of the client's own model towards the model sent", above=0, off="--client sgd"
    )
    personal_epochs: int | None = setting(
        None, "epochs for the client's own model; default: the value of epochs", least=1
    )

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs of SGD from w, then those of v."""
        update = local_sgd(task, self)
        v = task.each(lambda own: self.personalise(own, own.state))
        anchor = task.place.tensor(task.start.parameters)
        own = local_sgd(
            task.beside(v, self.personal_epochs or task.pace.epochs),
            self,
            correct=lambda w, g: g.add_(w, alpha=self.pull).sub_(anchor, alpha=self.pull),
        )
        return replace(update, state={"personal": own.weights})


PROVIDES = Ditto
