//! `tranship cert`: an authority of one's own, and credentials that it signs.

use crate::args::CertAction;
use crate::exit::Answer;
use anyhow::Result;
use std::path::PathBuf;
use std::time::Duration;
use tranship_transport::net::certificate;

fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 86400)
}

pub(crate) fn run(action: &CertAction) -> Result<Answer> {
    match action {
        CertAction::Init { dir, name, days: n } => {
            certificate::init(dir, name, days(*n))?;
            eprintln!(
                "{0}: ca.pem for everybody, ca-key.pem for nobody: keep it off the machines that talk.\n\
                 next: tranship cert issue NAME --ca {0}",
                dir.display()
            );
        }
        CertAction::Issue {
            name,
            address,
            ca,
            out,
            days: n,
        } => {
            let out = out.clone().unwrap_or_else(|| PathBuf::from(name));
            certificate::issue_into(ca, name, address, days(*n), &out)?;
            eprintln!(
                "{0}: valid for {n} days. On the machine {name}: TRANSHIP_TLS={0}, or into /etc/tranship/tls or \
                 ~/.config/tranship/tls",
                out.display()
            );
        }
    }
    Ok(Answer::Yes)
}
