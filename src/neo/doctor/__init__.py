"""``neo doctor``: what of this installation works, found by trying it."""
