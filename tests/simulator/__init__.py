"""A deterministic world for the real protocol machines: one seed decides everything that happens in it.

The machines under test are the ones a node runs. The simulator only replaces what surrounds them: network,
clock, disk, and the process that may crash. `python -m tests.simulator --help` runs seeds and replays them.
"""
