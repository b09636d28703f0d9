"""Load tests over HTTP with Locust. Not built yet."""
