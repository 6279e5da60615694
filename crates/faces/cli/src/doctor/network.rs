//! Channels between machines: whether there are credentials, and whether they work.

use super::finding::Finding;
use tranship_transport::net::{Credentials, default_credentials};

pub(super) fn look() -> Vec<Finding> {
    let name = "TLS credentials";
    let directory = match default_credentials() {
        Ok(directory) => directory,
        Err(why) => {
            return vec![Finding::weak(
                name,
                why.to_string(),
                "no tcp: channels with other machines",
                "tranship cert init, then tranship cert issue for each machine",
            )];
        }
    };
    let usable = Credentials::load(&directory).and_then(|credentials| credentials.verify());
    vec![match usable {
        Ok(()) => Finding::ok(name, format!("{}: usable", directory.display())),
        Err(why) => Finding::weak(
            name,
            why.to_string(),
            "tcp: channels are refused",
            "tranship cert issue makes new ones",
        ),
    }]
}
