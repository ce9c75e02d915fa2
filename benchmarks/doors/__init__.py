"""The ways into the engine: JSON lines, dicts, single events, beside Arrow's columns and peers."""
