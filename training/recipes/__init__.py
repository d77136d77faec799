"""The papers' set-ups, one a file: ``ima/fig1.toml`` is the recipe ``ima/fig1``. Files that begin with ``_`` are what
several share."""
