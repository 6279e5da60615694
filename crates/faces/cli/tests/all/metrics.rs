//! Figures and the page of a real manager: printed, served beside it, served by a process of one's own.

mod browser;
mod kit;
mod page;
mod served;
