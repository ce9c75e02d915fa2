"""Other people's matchers, built by `setup`, as processes that take turns with Tamis."""
