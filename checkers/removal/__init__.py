"""What can be left out of a history so that a valid one stays valid: parts of histories, and each model's rule."""
