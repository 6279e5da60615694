//! The kernel's ways with several receivers: the producer writes each frame once per consumer.

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};

use super::kernel::{Way, bytes, bytes_mut, read_all, write_all};
use crate::case::{Case, Pattern, Touch, Wait};
use crate::demo::{CONSUMERS, FRAME, Fan};
use crate::party::Party;
use crate::touch;

pub struct Copies<W> {
    /// To every consumer; or the one way in.
    ends: Vec<OwnedFd>,
    frame: Vec<u64>,
    way: PhantomData<W>,
}

impl<W: Way> Fan for Copies<W> {
    const NAME: &'static str = W::NAME;

    fn open(me: usize, party: &Party) -> Result<Self> {
        let case = Case {
            pattern: Pattern::Stream,
            wait: Wait::Block,
            touch: Touch::Touched,
            payload: FRAME,
            buffers: 1,
            loans: 1,
            cores: [0, 0],
            helper: true,
            budget: std::time::Duration::ZERO,
        };
        let mut ends = Vec::new();
        if me == 0 {
            for i in 1..=CONSUMERS {
                let [mine, theirs] = W::open(&case)?;
                party.send(i, 0, &[theirs.1.as_fd()])?;
                ends.push(mine.0);
            }
        } else {
            ends.push(party.recv(0)?.1.pop().context("way in")?);
        }
        Ok(Self {
            ends,
            frame: vec![1; FRAME / 8],
            way: PhantomData,
        })
    }

    fn send(&mut self, stamp: u64) -> Result<()> {
        // SAFETY: our own vector of words, that many bytes.
        unsafe { touch::fill(self.frame.as_mut_ptr().cast(), FRAME, stamp) }
        self.ends
            .iter()
            .try_for_each(|fd| write_all(fd, bytes(&self.frame)))
    }

    fn recv(&mut self) -> Result<u64> {
        read_all(&self.ends[0], bytes_mut(&mut self.frame))?;
        let stamp = self.frame[0];
        // SAFETY: our own vector of words, that many bytes.
        let sum = unsafe { touch::sum(self.frame.as_ptr().cast(), FRAME) };
        ensure!(
            sum == touch::expected(FRAME, stamp),
            "bytes of frame {stamp} changed"
        );
        Ok(stamp)
    }
}
