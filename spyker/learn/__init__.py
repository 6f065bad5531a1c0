"""What is learnt: data, models, local training, evaluation, and where training runs."""
