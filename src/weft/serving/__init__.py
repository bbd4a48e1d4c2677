"""Indexes as a service: HTTP API, search page, MCP server; and the client for them."""

from weft.serving.async_client import AsyncRemoteIndex, connect_async
from weft.serving.client import RemoteIndex, RemoteMatch, RemoteMatches, ServerError, connect

__all__ = ["AsyncRemoteIndex", "RemoteIndex", "RemoteMatch", "RemoteMatches", "ServerError", "connect", "connect_async"]
