"""Single models, from wherever they come: their wrappers, the names of their tensors, folders of them, adapters."""
