"""What the compiler makes of a set of programs, written down, so that two checkouts can be compared."""
