"""Finding what is wrong with a table as a whole, and mending it: each kind of damage a part of its own."""
