"""The frontend: HTTP, WebSocket and Server-Sent Events above the broker."""
