"""Benchmarks: `make bench`. They measure and report; nothing in them passes or fails."""
