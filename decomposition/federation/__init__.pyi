from .result import ClientData as ClientData
