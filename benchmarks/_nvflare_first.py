"""The model before the first round of an NVFlare job; NVFlare imports it by its dotted path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.app_common.abstract.model import make_model_learnable  # type: ignore[import-not-found, unused-ignore]
from nvflare.app_common.abstract.model_persistor import (  # type: ignore[import-not-found, unused-ignore]
    ModelPersistor,
)


class First(ModelPersistor):  # type: ignore[misc, unused-ignore]
    """Reads it from a file, and keeps nothing."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def load_model(self, fl_ctx: Any) -> Any:
        """Read it."""
        read = json.loads(Path(self.path).read_text(encoding="utf-8"))
        return make_model_learnable({name: np.asarray(value, np.float32) for name, value in read.items()}, {})

    def save_model(self, model: Any, fl_ctx: Any) -> None:
        """Keep nothing."""
