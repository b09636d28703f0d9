"""The API as its clients see it: real nodes, connected and partitioned, with and without faults."""
