"""The clients of a round: draws of them, whose samples are whose, how far apart they are, which diverged."""
