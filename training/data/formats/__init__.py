"""The files of published data sets as they are distributed: where they lie, and the formats they are in."""
