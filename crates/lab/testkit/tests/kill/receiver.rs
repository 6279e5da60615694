//! The receiver: takes from the writer and from the forwarder, keeps some, verifies all twice.

use tranship_core::{PollItem, Receiver, poll};
use tranship_testkit::{Control, child};

use crate::flow::Kept;
use crate::seat::{Broken, Order, ROUND, Seat, bearable, options, recv_over};

child!(
    pub fn receiver(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "receiver", 2)?;
        let mut ends = [End::new("direct"), End::new("onward")];
        loop {
            match seat.round()? {
                None => round(&mut ends, &mut seat)?,
                Some(Order::Strip) => {
                    ends.iter_mut().try_for_each(End::close)?;
                    return seat.stripped();
                }
                Some(Order::Quit) => return ends.iter_mut().try_for_each(End::close),
                Some(other) => return Err(format!("receiver: {other:?}")),
            }
        }
    }
);

struct End {
    name: &'static str,
    link: Option<Receiver>,
    kept: Kept,
}

impl End {
    fn new(name: &'static str) -> End {
        End {
            name,
            link: None,
            kept: Kept::default(),
        }
    }

    fn close(&mut self) -> Result<(), Broken> {
        // In half of all cases the link goes before the messages that came by it.
        let link = self.link.take();
        if self.kept.len().is_multiple_of(2) {
            drop(link);
            self.kept.clear()
        } else {
            self.kept.clear()?;
            drop(link);
            Ok(())
        }
    }

    fn open(&mut self, seat: &Seat) -> Result<(), Broken> {
        if self.link.is_none() {
            match seat.domain.open_with::<Receiver>(self.name, options()) {
                Ok(link) => self.link = Some(link),
                Err(e) => bearable(&e)?,
            }
        }
        Ok(())
    }

    /// True if a message came.
    fn take(&mut self, seat: &mut Seat) -> Result<bool, Broken> {
        let Some(link) = &mut self.link else {
            return Ok(false);
        };
        match link.try_recv() {
            Ok(None) => Ok(false),
            Ok(Some(message)) => {
                // Only the pool's writer takes back.
                if self.name == "direct" && seat.random.one_in(2) {
                    self.kept.keep_or_pass(message, link)?;
                } else {
                    self.kept.push(message, &mut seat.random)?;
                }
                if seat.random.one_in(400) {
                    self.close()?;
                }
                Ok(true)
            }
            Err(e) => {
                if recv_over(&e)? {
                    self.close()?;
                } else {
                    seat.idle();
                }
                Ok(false)
            }
        }
    }
}

fn round(ends: &mut [End; 2], seat: &mut Seat) -> Result<(), Broken> {
    let mut came = false;
    for (way, end) in ends.iter_mut().enumerate() {
        end.open(seat)?;
        if end.take(seat)? {
            seat.ways[way] += 1;
            came = true;
        }
    }
    if came {
        return Ok(());
    }
    let mut links: Vec<PollItem<'_>> = ends
        .iter_mut()
        .filter_map(|end| end.link.as_mut().map(PollItem::receiver))
        .collect();
    if links.is_empty() {
        seat.idle();
    } else if poll(&mut links, Some(ROUND)).unwrap().is_empty() {
        // The writer may wait for kept buffers.
        return ends.iter_mut().try_for_each(|end| end.kept.clear());
    }
    Ok(())
}
