"""The layer `corel` in the simulated world: plans, processes, runs, and planted bugs."""
