"""The timeline: instants, their transitions, the archive."""
