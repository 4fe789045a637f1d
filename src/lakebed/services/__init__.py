"""The table services, a file each: they keep a table in shape, within writes, by hand, or as a process."""
