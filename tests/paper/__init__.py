"""One test, or a few, per claim of the papers that can be observed, each naming it."""
