"""The key-value store: its state machine, the node that hosts all layers, settings, and the `corelkv` command."""
