"""Commands that run a broker or talk to one."""
