"""What is learnt: tasks, datasets, models, local training and metrics."""
