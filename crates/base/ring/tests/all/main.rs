//! Rings between threads. Models with weak memory are `loom_models` and `tso_models`.
#![cfg(not(loom))]

mod broadcast;
mod half;
mod hostile;
mod ring;
mod wait;
