"""The vocabulary: what is run, where, at which points, and what was learnt."""

OLDEST_DISTRIBUTED = (2023, 5)  # the oldest release with the internals that `capture` and `clusters` use
