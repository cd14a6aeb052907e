"""Data: readers, the combined format, vocabularies, and the split of global batches over ranks."""
