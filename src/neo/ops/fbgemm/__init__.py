"""The FBGEMM backend: all local tables of one kind in one table-batched embedding operator."""
