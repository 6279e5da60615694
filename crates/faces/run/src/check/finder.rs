//! Faults, and the lines where they are.

use toml::Spanned;

/// A fault of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Line, from 1.
    pub line: usize,
    /// The fault, and its remedy.
    pub text: String,
}

/// Lines of a text, and the faults found so far.
pub(crate) struct Finder<'a> {
    pub text: &'a str,
    pub faults: Vec<Fault>,
}

impl Finder<'_> {
    pub(crate) fn line<T>(&self, of: &Spanned<T>) -> usize {
        line(self.text, of.span().start)
    }

    pub(crate) fn fault<T>(&mut self, at: &Spanned<T>, text: impl Into<String>) {
        let line = self.line(at);
        self.fault_at(line, text);
    }

    pub(crate) fn fault_at(&mut self, line: usize, text: impl Into<String>) {
        let text = text.into();
        self.faults.push(Fault { line, text });
    }

    /// Reads a size or a time; a fault stands for the value's default.
    pub(crate) fn unit<T>(
        &mut self,
        value: Option<&Spanned<String>>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = value?;
        match parse(value.get_ref()) {
            Ok(parsed) => Some(parsed),
            Err(why) => {
                self.fault(value, format!("{:?}: {why}", value.get_ref()));
                None
            }
        }
    }
}

/// Returns the line of a place in a text.
pub(crate) fn line(text: &str, at: usize) -> usize {
    1 + text[..at.min(text.len())].matches('\n').count()
}

pub(crate) fn index(names: &[&str], name: &str) -> Option<usize> {
    names.iter().position(|known| *known == name)
}

pub(crate) fn unknown<T>(find: &mut Finder<'_>, at: &Spanned<T>, name: &str, names: &[&str]) {
    let text = format!("no component `{name}`; there are: {}", names.join(", "));
    find.fault(at, text);
}

/// Checks a name as the manager takes it.
pub(crate) fn check_name(find: &mut Finder<'_>, name: &Spanned<String>) {
    let text = name.get_ref();
    let visible = |c: char| c.is_ascii_graphic() && c != ':' && c != '/';
    if text.is_empty() || text.len() > 64 || !text.chars().all(visible) {
        find.fault(
            name,
            format!("{text:?} is no name: 1 to 64 visible ASCII characters, no blank, `:` or `/`"),
        );
    }
}
