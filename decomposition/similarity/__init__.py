"""How similar models are: linear CKA of their outputs or layers, between clients, over rounds."""

# the question
from .batches import minibatches, usual_batch
from .estimators import LEAST, Estimator, cka, gram, hsic, jackknife
from .figure import draw_clients, draw_models

# the answers
from .model_result import ModelCKA, ModelCKAs
from .result import ClientCKA, ClientCKAs, LayersCKA, RoundCKA, layer_ends
from .similarities import batch_hsics, model_similarity, round_similarity

__all__ = [
    "LEAST",
    "ClientCKA",
    "ClientCKAs",
    "Estimator",
    "LayersCKA",
    "ModelCKA",
    "ModelCKAs",
    "RoundCKA",
    "batch_hsics",
    "cka",
    "draw_clients",
    "draw_models",
    "gram",
    "hsic",
    "jackknife",
    "layer_ends",
    "minibatches",
    "model_similarity",
    "round_similarity",
    "usual_batch",
]
