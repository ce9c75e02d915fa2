"""Running a broker: settings, access control, health, metrics, logs and chores."""
