"""A LAN of network namespaces on one machine, and the tests that run real nodes on it."""
