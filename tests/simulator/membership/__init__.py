"""The layer `membership` in the simulated world: plans, processes, runs, and planted bugs."""
