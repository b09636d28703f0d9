"""The layer `store` in the simulated world: plans, processes, runs, and planted bugs."""
