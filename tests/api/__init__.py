"""The API as its clients see it: real nodes, whole and cut apart, on good days and bad ones."""
