"""The layer `transport` in the simulated world: plans, processes, runs, and planted bugs."""
