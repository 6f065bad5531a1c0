"""Followers: TensorBoard, MLflow and Weights & Biases are told a run as it goes on, from its facts alone.

``readings.py`` makes rows of numbers of the facts, one row per evaluation; ``tracker.py`` says what a tracker is, and
there is one file for each; ``following.py`` tells some trackers one run, ``live.py`` one that another process makes.
"""
