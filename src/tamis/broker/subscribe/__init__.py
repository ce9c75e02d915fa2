"""Subscriptions: adding, changing and ending them; replay and history."""
