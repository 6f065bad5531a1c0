"""A Flower app that learns to read digits with scikit-learn. It knows nothing of Spyker."""
