//! Real processes: clients and managers that die, hang, lie or want too much, and the kit itself.

mod attacks;
mod confined;
mod containers;
mod containers_exchange;
mod growth;
mod hogs;
mod huge_pages;
mod hung;
mod lab;
mod leave;
mod moves;
mod peers;
mod pressed;
mod restart;
mod scheduled;
mod sealed;
mod skips;
mod starved;
mod syscalls;
mod syscalls_stream;
mod traced;
