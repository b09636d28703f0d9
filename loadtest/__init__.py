"""Load tests over HTTP with Locust, and an audit of what the cluster promised meanwhile. docs/loadtest.md shows
how to use them; `python -m loadtest` runs them.

The modules that import Locust (`users`, `session`, `gathering` and `locustfile`) are loaded by Locust only: to
import it replaces sockets and threads by gevent's. All others are ordinary Python."""
