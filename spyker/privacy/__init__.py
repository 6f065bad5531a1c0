"""What clients do so that their updates disclose little of their data. Pure functions and small state machines."""
