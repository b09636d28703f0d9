"""REST, watch and console. Not built yet."""
