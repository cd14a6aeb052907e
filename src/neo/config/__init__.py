"""From Hydra's configuration to frozen specs, with every mistake found before anything starts."""
