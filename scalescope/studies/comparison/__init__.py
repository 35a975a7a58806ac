"""The study that tells whether B is slower than A."""
