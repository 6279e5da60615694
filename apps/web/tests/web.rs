//! The web server as `tranship run` starts it: real processes, and clients of a Unix socket.

#[path = "web/bounds.rs"]
mod bounds;
#[path = "web/browser.rs"]
mod browser;
#[path = "web/client.rs"]
mod client;
#[path = "web/contents.rs"]
mod contents;
#[path = "web/deaths.rs"]
mod deaths;
#[path = "web/fastcgi.rs"]
mod fastcgi;
#[path = "web/idle.rs"]
mod idle;
#[path = "web/kills.rs"]
mod kills;
#[path = "web/path.rs"]
mod path;
#[path = "web/peers.rs"]
mod peers;
#[path = "web/protocol.rs"]
mod protocol;
#[path = "web/rows.rs"]
mod rows;
#[path = "web/site.rs"]
mod site;
#[path = "web/tap.rs"]
mod tap;
#[path = "web/tls.rs"]
mod tls;
