"""The library: compiled subscriptions, version by version, and the compiler."""
