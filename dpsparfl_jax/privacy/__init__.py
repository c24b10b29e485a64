"""What every client has spent, and who may still take part (host, float64)."""
