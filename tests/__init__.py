"""The tests, mirroring the packages; `simulator/` runs the same machines in a simulated world."""
