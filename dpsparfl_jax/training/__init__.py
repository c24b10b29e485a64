"""Private, sparse local training of many clients at once (device)."""
