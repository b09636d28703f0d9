"""The REST API of a node, over HTTP/1.1."""

from api.server import ServerError, listen, serve_http

__all__ = ["ServerError", "listen", "serve_http"]
