//! Send tags: which queue or rate limit of a device a packet belongs to.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVING: AtomicUsize = AtomicUsize::new(0);

/// A counted reference to a driver's own data (`struct m_snd_tag`). Cloning is `m_snd_tag_ref`, dropping
/// `m_snd_tag_rele`; the driver's data is dropped with the last reference.
#[derive(Clone)]
#[doc(alias = "m_snd_tag")]
#[doc(alias = "m_snd_tag_ref")]
#[doc(alias = "m_snd_tag_rele")]
pub struct SendTag(Arc<Inner>);

struct Inner {
    interface: u32,
    data: Box<dyn Any + Send + Sync>,
}

impl SendTag {
    /// Makes a new tag of an interface.
    #[doc(alias = "m_snd_tag_alloc")]
    #[doc(alias = "m_snd_tag_init")]
    #[must_use]
    pub fn new(interface: u32, data: impl Any + Send + Sync) -> SendTag {
        LIVING.fetch_add(1, Ordering::Relaxed);
        SendTag(Arc::new(Inner {
            interface,
            data: Box::new(data),
        }))
    }

    /// Returns the interface of the tag: a packet that leaves by another interface must not carry it.
    #[must_use]
    pub fn interface(&self) -> u32 {
        self.0.interface
    }

    /// Returns the driver's data, if it is of this type.
    #[must_use]
    pub fn data<T: Any>(&self) -> Option<&T> {
        self.0.data.downcast_ref()
    }

    /// Returns the number of send tags in the process (`num_snd_tags`).
    #[doc(alias = "num_snd_tags")]
    #[must_use]
    pub fn living() -> usize {
        LIVING.load(Ordering::Relaxed)
    }
}

impl Drop for Inner {
    #[doc(alias = "m_snd_tag_destroy")]
    fn drop(&mut self) {
        LIVING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for SendTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendTag")
            .field("interface", &self.0.interface)
            .finish_non_exhaustive()
    }
}
