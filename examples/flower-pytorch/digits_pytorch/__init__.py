"""A Flower app that learns to read digits with PyTorch. It knows nothing of Spyker."""
