"""``summary.html``: a run on one self-contained page. Torch-free."""

PAGE = "summary.html"
