"""The key-value store, in four parts: `store` is the pure state machine, `node` runs it with real sockets, clocks
and disks, `client` is an HTTP client of a node, and `cli` is the `corelkv` command."""
