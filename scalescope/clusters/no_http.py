"""Imported by a process, it starts no HTTP server, which even without routes would answer `/sitemap.json`."""

from distributed.node import ServerNode

ServerNode.start_http_server = lambda *arguments, **options: None
