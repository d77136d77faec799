"""How similar models are: linear CKA of their outputs or layers, between clients, over rounds."""

# the question
from .batches import minibatches, usual_batch
from .estimators import LEAST, Estimator, cka, gram, hsic, jackknife
from .figure import draw_clients, draw_models

# the answers
from .result import ClientCKA, ModelCKA, RoundCKA
from .similarities import batch_hsics, model_similarity, round_similarity
from .words import clients_sentence, models_sentence

__all__ = [
    "LEAST",
    "ClientCKA",
    "Estimator",
    "ModelCKA",
    "RoundCKA",
    "batch_hsics",
    "cka",
    "clients_sentence",
    "draw_clients",
    "draw_models",
    "gram",
    "hsic",
    "jackknife",
    "minibatches",
    "model_similarity",
    "models_sentence",
    "round_similarity",
    "usual_batch",
]
