"""Upgrade and downgrade: see `change`."""
