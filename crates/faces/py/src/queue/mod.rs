//! Queues: `tranship.Producer`, `tranship.Consumer` and `tranship.Item`.

mod consumer;
mod item;
mod producer;

pub(crate) use consumer::Consumer;
pub(crate) use item::Item;
pub(crate) use producer::Producer;
