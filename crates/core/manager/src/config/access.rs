//! Access rules: the first rule that matches decides; a list without a matching rule refuses.

use serde::{Deserialize, Deserializer, de};
use tranship_proto::{MAX_NAME_BYTES, check_name};

/// A user or a group of users.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Who {
    /// Every user: `"*"`.
    #[default]
    All,
    /// This one.
    Id(u32),
}

impl Who {
    fn is(self, id: u32) -> bool {
        matches!(self, Who::All) || self == Who::Id(id)
    }
}

impl<'de> Deserialize<'de> for Who {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Who, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Id(u32),
            Text(String),
        }
        match Raw::deserialize(d)
            .map_err(|_: D::Error| de::Error::custom("expected a numeric id or \"*\""))?
        {
            Raw::Id(id) => Ok(Who::Id(id)),
            Raw::Text(t) if t == "*" => Ok(Who::All),
            Raw::Text(t) => Err(de::Error::custom(format!(
                "{t:?} is neither a numeric id nor \"*\""
            ))),
        }
    }
}

/// One access rule. A field without a value matches everything.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// User.
    #[serde(default)]
    pub uid: Who,
    /// Group.
    #[serde(default)]
    pub gid: Who,
    /// A name, or the beginning of one followed by `*`.
    #[serde(default, deserialize_with = "opt_pattern")]
    pub name: Option<String>,
    /// Whether the rule allows access.
    #[serde(default = "yes")]
    pub allow: bool,
}

/// A name, or the beginning of one followed by `*`, that only one user may export.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// The name.
    #[serde(deserialize_with = "pattern")]
    pub name: String,
    /// The owner's uid.
    pub uid: u32,
}

/// A name of a program of components, and the keys of the domains that may have its ends.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The name. It stands for all names that begin with it and a slash, too.
    pub name: String,
    /// Line of the program's file, for errors.
    pub line: u32,
    /// Keys of the domains that may export it.
    pub export: Vec<String>,
    /// Keys of the domains that may connect to it.
    pub bind: Vec<String>,
}

impl Given {
    /// Says whether the rule is about this name.
    pub(super) fn is_of(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Says whether a key opens the name.
    pub(super) fn opens(&self, key: Option<&str>, exports: bool) -> bool {
        let keys = if exports { &self.export } else { &self.bind };
        key.is_some_and(|key| keys.iter().any(|its| its == key))
    }
}

/// Reads rules that have no names.
pub(super) fn nameless<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Rule>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nameless {
        #[serde(default)]
        uid: Who,
        #[serde(default)]
        gid: Who,
        #[serde(default = "yes")]
        allow: bool,
    }
    let rules = Vec::<Nameless>::deserialize(d)?.into_iter();
    Ok(rules
        .map(|Nameless { uid, gid, allow }| Rule {
            uid,
            gid,
            name: None,
            allow,
        })
        .collect())
}

/// Reads a name, or the beginning of one.
pub(super) fn pattern<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let text = String::deserialize(d)?;
    let start = text.strip_suffix('*');
    if start == Some("") || check_name(start.unwrap_or(&text)) {
        return Ok(text);
    }
    Err(de::Error::custom(format!(
        "{text:?} is no name: 1 to {MAX_NAME_BYTES} bytes without control characters, and perhaps a \"*\" at its end"
    )))
}

fn opt_pattern<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    pattern(d).map(Some)
}

fn yes() -> bool {
    true
}

pub(super) fn name_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

pub(super) fn allowed(rules: &[Rule], uid: u32, gid: u32, name: Option<&str>) -> bool {
    if rules.is_empty() {
        return true;
    }
    rules
        .iter()
        .find(|r| {
            r.uid.is(uid)
                && r.gid.is(gid)
                && match (&r.name, name) {
                    (Some(pattern), Some(name)) => name_matches(pattern, name),
                    _ => true,
                }
        })
        .is_some_and(|r| r.allow)
}
