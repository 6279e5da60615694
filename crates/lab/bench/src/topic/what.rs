//! The measured operations, for all systems.

pub const BUFFERS: u32 = 1024;
pub const LINES: u32 = 64;
pub const PAYLOAD: usize = 64;
/// Publishes of one sample of a stream.
pub const BURST: u32 = 16;
/// Subscribers and bytes of a delivery.
pub const DELIVERED: (usize, usize) = (8, 1 << 20);

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    Publish,
    Stream,
    Asleep,
    Delivered,
    Trip,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Publish => "publish",
            Mode::Stream => "stream",
            Mode::Asleep => "asleep",
            Mode::Delivered => "delivered",
            Mode::Trip => "trip",
        }
    }

    /// Bytes of a message.
    pub fn bytes(self) -> usize {
        match self {
            Mode::Delivered => DELIVERED.1,
            _ => PAYLOAD,
        }
    }
}
