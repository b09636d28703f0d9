"""COREL: one totally ordered log over a partitionable group (Keidar and Dolev, section 3)."""
