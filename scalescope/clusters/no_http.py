"""Keeps a process that imports it from starting an HTTP server; even without routes, that answers `/sitemap.json`."""

from distributed.node import ServerNode

ServerNode.start_http_server = lambda *arguments, **options: None
