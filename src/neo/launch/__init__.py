"""Start the workers of a run and end them together; the parent side is torch-free."""
