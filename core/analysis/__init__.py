"""The parts that all analyses share: their settings, their inputs, how they are run, and the one loop over rounds."""
