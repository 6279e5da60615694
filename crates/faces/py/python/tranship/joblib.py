"""A backend for joblib: `tranship.Executor`, whose arguments and results go by reference.

    tranship.joblib.register()
    with joblib.parallel_config(backend="tranship", n_jobs=4):     # parallel_backend("tranship") before joblib 1.3
        joblib.Parallel()(joblib.delayed(work)(array) for array in arrays)

Functions are pickled: they are to be found in a module, as with joblib's backend "multiprocessing".
"""

import joblib
from joblib._parallel_backends import FallbackToBackend, SequentialBackend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

from .mp import Executor

__all__ = ["Backend", "register"]


class Backend(AutoBatchingMixin, ParallelBackendBase):
    """Runs batches of calls in the workers of a `tranship.Executor`."""

    supports_timeout = True
    supports_retrieve_callback = True

    def effective_n_jobs(self, n_jobs):
        """Returns the number of workers: -1 is one for each processor, -2 one less."""
        if n_jobs == 0:
            raise ValueError("n_jobs is 0: at least one worker is needed; -1 is one for each processor")
        if n_jobs is None or self.nesting_level:
            return 1
        return n_jobs if n_jobs > 0 else max(joblib.cpu_count() + 1 + n_jobs, 1)

    def configure(self, n_jobs=1, parallel=None, prefer=None, require=None, **_named):
        """Starts the workers."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel, self._workers = parallel, n_jobs
        self._executor = Executor(n_jobs)
        return n_jobs

    def submit(self, func, callback=None):
        """Calls a batch in a worker."""
        future = self._executor.submit(func)
        future.get = future.result
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit  # its name before joblib 1.5

    def retrieve_result_callback(self, out):
        """Returns the results of a batch."""
        return out.result()

    def terminate(self):
        """Ends the workers."""
        self._executor.shutdown()

    def abort_everything(self, ensure_ready=True):
        """Gives up the calls that have not begun."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if ensure_ready:
            self._executor = Executor(self._workers)


def register():
    """Makes the backend known to joblib, as "tranship".

    >>> import joblib, tranship.joblib
    >>> tranship.joblib.register()
    >>> with joblib.parallel_backend("tranship", n_jobs=2):
    ...     joblib.Parallel()(joblib.delayed(abs)(number) for number in (-1, 2))
    [1, 2]
    """
    joblib.register_parallel_backend("tranship", Backend)
