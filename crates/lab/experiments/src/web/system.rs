//! The web servers by name.

use clap::ValueEnum;
use serde::Serialize;

/// A web server, and the part of it that answers.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// The web server of isolated components: its dynamic component.
    Tranship,
    /// Our web server, compiled into one process.
    SingleProcess,
    /// Apache with mod_fcgid, which starts the application.
    ApacheFcgid,
    /// Apache with mod_proxy_fcgi.
    ApacheProxy,
    /// nginx with FastCGI over kept connections.
    NginxFcgi,
    /// The file component of the web server of isolated components.
    TranshipStatic,
    /// nginx that serves files.
    NginxStatic,
}

impl System {
    /// Every system, in the order of tables.
    pub const ALL: [System; 7] = [
        System::Tranship,
        System::SingleProcess,
        System::ApacheFcgid,
        System::ApacheProxy,
        System::NginxFcgi,
        System::TranshipStatic,
        System::NginxStatic,
    ];

    /// Returns the name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tranship => "tranship",
            Self::SingleProcess => "single-process",
            Self::ApacheFcgid => "apache-fcgid",
            Self::ApacheProxy => "apache-proxy",
            Self::NginxFcgi => "nginx-fcgi",
            Self::TranshipStatic => "tranship-static",
            Self::NginxStatic => "nginx-static",
        }
    }

    /// Returns the path of a request for so many bytes.
    pub fn path(self, bytes: u64) -> String {
        match self {
            Self::TranshipStatic | Self::NginxStatic => format!("/static/{bytes}"),
            Self::Tranship | Self::SingleProcess => format!("/dynamic?n={bytes}"),
            _ => format!("/bytes/{bytes}"),
        }
    }

    /// Returns whether a FastCGI application of its own runs beside the server.
    pub fn has_application(self) -> bool {
        matches!(self, Self::ApacheProxy | Self::NginxFcgi)
    }

    /// Returns whether it answers from files.
    pub fn serves_files(self) -> bool {
        matches!(self, Self::TranshipStatic | Self::NginxStatic)
    }

    /// Returns whether it is ours, and answers by computing.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Tranship | Self::SingleProcess)
    }
}
