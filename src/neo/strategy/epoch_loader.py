"""Our loader as Lightning wants it: an epoch is what Lightning says, however often it asks for an iterator."""

from collections.abc import Iterator

from neo.data.batch import Batch
from neo.data.loader import GlobalBatchLoader


class EpochLoader:
    """Hands out this rank's batches of one epoch; nothing is read before the first is asked for.

    Args:
        loader: Aligned over the ranks by construction.
    """

    def __init__(self, loader: GlobalBatchLoader) -> None:
        self._loader = loader
        self._epoch = 0
        self._begins = (0, 0)

    def begin_at(self, *, epoch: int, sample: int) -> int:
        """Let ``epoch`` begin at one of its samples, as a resumed run does; other epochs are whole.

        Returns:
            How many batches of that epoch count as done.
        """
        self._epoch, self._begins = epoch, (epoch, sample)
        return self._loader.batches_before(sample)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration, counted from 0."""
        self._epoch = epoch

    @property
    def sampler(self) -> "EpochLoader":
        """Where Lightning sets the epoch."""
        return self

    @property
    def batch_sampler(self) -> None:
        """Lightning asks for it wherever there is a sampler; batches are made before they come here."""
        return None

    def __len__(self) -> int:
        """Return the number of global batches. Raises TypeError if it is not known."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        epoch, sample = self._begins
        self._loader.set_epoch(self._epoch, first_sample=sample if self._epoch == epoch else 0)
        yield from self._loader
