"""PyTorch datasets and checkpoints on object storage, by URI."""
