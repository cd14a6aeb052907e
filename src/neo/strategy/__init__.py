"""Training with Lightning: the strategy that shards embedding tables, our LightningModule, callbacks and the run."""
