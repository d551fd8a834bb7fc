"""Making tensors, and their memory and dtypes."""
