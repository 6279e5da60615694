//! What programs say.

use serde_json::Value;
use std::process::{Command, Output};

/// What a program wrote until its end, and its exit code.
#[derive(Debug)]
pub struct Said {
    /// Exit code; nothing if a signal ended the program.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// The command, if it is known, and how it ended.
    pub about: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
            about: output.status.to_string(),
        }
    }
}

impl Said {
    /// Runs a program to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn of(command: &mut Command) -> Said {
        let output = command.output();
        let mut said = Said::from(output.unwrap_or_else(|error| panic!("{command:?}: {error}")));
        said.about = format!("{command:?}: {}", said.about);
        said
    }

    /// Checks the exit code, and that the program's errors have these words.
    ///
    /// # Panics
    /// If they do not.
    #[track_caller]
    pub fn ends(&self, code: i32, words: &[&str]) {
        let Said {
            about, out, err, ..
        } = self;
        assert_eq!(self.code, Some(code), "{about}\n{out}{err}");
        for word in words {
            assert!(err.contains(word), "{about}\nno {word:?}:\n{err}");
        }
    }

    /// Returns the output of a program that ended well.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn well(self) -> String {
        self.ends(0, &[]);
        self.out
    }

    /// Returns the output of a program that ended well, parsed.
    ///
    /// # Panics
    /// If it did not, or if its output is no JSON.
    #[track_caller]
    pub fn json(self) -> Value {
        let out = self.well();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

/// Checks that a text has all of these words.
///
/// # Panics
/// If one is not there.
#[track_caller]
pub fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?}:\n{text}");
    }
}
