"""What people look at: live progress, tables and plots. All of it is made from run records."""
