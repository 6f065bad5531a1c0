"""Live progress, tables and plots, made from run records."""
