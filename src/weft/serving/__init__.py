"""Indexes as a service: HTTP API, search page, MCP server; and the client for them."""

from weft.serving.async_client import AsyncRemoteIndex
from weft.serving.client import RemoteIndex, RemoteMatch, RemoteMatches, ServerError

__all__ = ["AsyncRemoteIndex", "RemoteIndex", "RemoteMatch", "RemoteMatches", "ServerError"]
