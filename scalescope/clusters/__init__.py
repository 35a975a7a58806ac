"""Where it runs: the simulated, virtual and local clusters behind one interface."""
