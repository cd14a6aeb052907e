"""The only package that imports lightning: strategy, module, callbacks; ``spec`` is torch-free."""
