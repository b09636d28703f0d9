"""The node: wiring of the layers, configuration and the `corelkv` command. The store itself is not built yet."""
