"""Components of the jobs of nvflare_app.py, which NVFlare copies into their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.abstract.model import ModelLearnable, ModelLearnableKey, make_model_learnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator


class FromFile(ModelPersistor):  # type: ignore[misc, unused-ignore]
    """The model before the first round; keeps what it is given to save."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self._saved = 0

    def load_model(self, fl_ctx: Any) -> ModelLearnable:
        from nvflare_app import initial

        return make_model_learnable(initial(), {})

    def save_model(self, model: ModelLearnable, fl_ctx: Any) -> None:
        np.savez(Path(self.folder, "sent", f"global-{self._saved}.npz"), **model[ModelLearnableKey.WEIGHTS])
        self._saved += 1


class Careless(ModelAggregator):  # type: ignore[misc, unused-ignore]
    """Takes the plain mean, and spoils what clients sent in doing so."""

    def __init__(self) -> None:
        super().__init__()
        self._models: list[Any] = []

    def accept_model(self, model: FLModel) -> None:
        self._models.append(dict(model.params))
        for value in model.params.values():
            value *= 0

    def aggregate_model(self) -> FLModel:
        mean = {name: np.mean([model[name] for model in self._models], axis=0) for name in self._models[0]}
        return FLModel(params={name: np.asarray(value) + 1 for name, value in mean.items()})

    def reset_stats(self) -> None:
        self._models = []
