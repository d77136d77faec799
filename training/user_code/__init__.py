"""Code of the user's own in training: methods, models, data and partitions, typed or handed over, and what a run keeps
of it.

A name that a file holds is never imported. What may be run is an
:class:`~fedscope.training.settings.own_code.OwnCode`, a text that comes with the code itself: only options that
somebody typed, objects that Python was given, and ``--code`` make one.
"""
