"""Runs recorded as a real cluster leaves them behind: journals, written by the code of a node in simulated time,
and exports of the simulated disks, so that the audit of `spark/` can judge what the simulator's checkers judge."""
