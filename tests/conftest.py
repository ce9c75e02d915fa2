"""Settings of Hypothesis for all tests."""

from __future__ import annotations

from hypothesis import settings

# No deadline: the machine may be busy with other tests, and slow tests show in `--durations`.
settings.register_profile("tamis", deadline=None)
settings.load_profile("tamis")
