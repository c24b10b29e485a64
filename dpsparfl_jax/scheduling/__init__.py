"""Who sends, on which channel, with how much power, keeping how much."""
