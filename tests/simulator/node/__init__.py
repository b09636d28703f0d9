"""One-line bugs in what a node does with its disk. It has no simulation of its own: directed tests notice them."""
