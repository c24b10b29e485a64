"""Image sets and how they are dealt to clients (host only)."""
