//! Threads of carriers: no signal disturbs them.

use std::thread::JoinHandle;
use tranship_core::Error;
use tranship_sys::signals;

const STACK_BYTES: usize = 256 << 10;

pub(crate) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let failed = || Error::system("starting a carrier's thread");
    let mask = signals::block_all().map_err(failed())?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.stack_size(STACK_BYTES).spawn(run);
    signals::restore(&mask);
    started.map_err(failed())
}
