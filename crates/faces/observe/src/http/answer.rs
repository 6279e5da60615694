//! Answers to requests.

use super::request::{Asked, Wrong};
use super::{accept, host};
use crate::look::Looks;
use crate::tally::Tally;
use crate::{json, render};
use std::sync::{Mutex, PoisonError};

const PAGE: &str = include_str!("../web/index.html");
const SCRIPT: &str = include_str!("../web/app.js");
const PLOTS: &str = include_str!("../web/plots.js");
const STYLE: &str = include_str!("../web/style.css");

/// Headers of every answer: nothing from elsewhere, nothing in a frame, no type guessed, nothing kept.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
Cross-Origin-Opener-Policy: same-origin\r\nCache-Control: no-store\r\nConnection: close\r\n";

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn new(kind: &'static str, body: impl Into<String>) -> Answer {
        Answer {
            status: 200,
            kind,
            body: body.into(),
        }
    }

    pub fn wrong((status, why): Wrong) -> Answer {
        let kind = "text/plain; charset=utf-8";
        Answer {
            status,
            kind,
            body: format!("{why}\n"),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let allow = if self.status == 405 {
            "Allow: GET\r\n"
        } else {
            ""
        };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}{HEADERS}\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        [head.as_bytes(), self.body.as_bytes()].concat()
    }
}

/// Content that is served to all clients.
pub(crate) struct Content {
    pub looks: Looks,
    pub tally: Mutex<Tally>,
    /// Names besides addresses and `localhost`.
    pub hosts: Vec<String>,
}

impl Content {
    /// Returns the answer to a request. `page`: the page is served here, too. `local`: no browser comes this way.
    pub fn answer(&self, asked: &Asked, page: bool, local: bool) -> Answer {
        if !local && !host::allowed(asked.host.as_deref(), &self.hosts) {
            return Answer::wrong((
                403,
                "this host is not one that this is known by: ask by address, by localhost, or say --host NAME where it is started",
            ));
        }
        if asked.method != "GET" {
            return Answer::wrong((405, "GET only"));
        }
        match asked.path.as_str() {
            "/metrics" => {
                let format = accept::format(asked.accept.as_deref());
                let looked = self.looks.get();
                let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
                let looked = (*looked).as_ref().map_err(String::as_str);
                Answer::new(format.content_type(), render(looked, &mut tally, format))
            }
            "/data.json" if page => {
                let looked = self.looks.get();
                let data = json::page_data((*looked).as_ref().map_err(String::as_str));
                Answer::new("application/json", data.to_string())
            }
            "/" if page => Answer::new("text/html; charset=utf-8", PAGE),
            "/app.js" if page => Answer::new("text/javascript; charset=utf-8", SCRIPT),
            "/plots.js" if page => Answer::new("text/javascript; charset=utf-8", PLOTS),
            "/style.css" if page => Answer::new("text/css; charset=utf-8", STYLE),
            "/" => Answer::wrong((404, "figures are at /metrics")),
            _ => Answer::wrong((404, "nothing here")),
        }
    }
}
