//! Configurations of the peers: one worker, no log, connections that live as long as the client wants them.

use super::CONNECTIONS;
use super::system::System;
use std::path::Path;

/// Processes of a FastCGI application: more than there are connections, as each process serves one.
pub(super) const APPLICATIONS: u32 = 24;

/// Returns the text of a peer's configuration file; none for ours.
pub(super) fn text(system: System, dir: &Path, port: u16, root: bool) -> Option<String> {
    let (text, application, user) = match system {
        System::NginxFcgi | System::NginxStatic => {
            (include_str!("nginx.conf.in"), "", "user root;")
        }
        System::ApacheFcgid => (
            include_str!("apache.conf.in"),
            include_str!("fcgid.conf.in"),
            "User www-data\nGroup www-data",
        ),
        // libfcgi ends kept connections at times that Apache takes for errors: each request has its own.
        System::ApacheProxy => (
            include_str!("apache.conf.in"),
            include_str!("proxy.conf.in"),
            "User www-data\nGroup www-data",
        ),
        System::Tranship | System::SingleProcess | System::TranshipStatic => return None,
    };
    let text = text.replace("@APPLICATION@", application);
    let text = text.replace("@USER@", if root { user } else { "" });
    let text = text.replace("@MODULES@", "/usr/lib/apache2/modules");
    let text = text.replace("@DIR@", &dir.display().to_string());
    let text = text.replace("@CONNECTIONS@", &CONNECTIONS.to_string());
    Some(text.replace("@PORT@", &port.to_string()))
}
