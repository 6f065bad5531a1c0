"""The simulation: regions, links, processors and clients in virtual time, reproducible to the bit."""
