//! `tranship demo`.
use crate::args::{ConsumerArgs, DemoArgs};
use crate::exit::Answer;
use anyhow::{Result, bail};
pub(crate) fn run(_: &DemoArgs) -> Result<Answer> {
    bail!("this build has no client library yet")
}
pub(crate) fn run_consumer(_: &ConsumerArgs) -> Result<Answer> {
    bail!("this build has no client library yet")
}
