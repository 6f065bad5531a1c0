"""The emulated world: regions, links, processors and clients in virtual time, repeatable to the bit."""
