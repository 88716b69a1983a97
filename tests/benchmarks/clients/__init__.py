"""What is measured: this project, and each peer at its best public setting."""
