//! The file as it is written: TOML, whose values know their lines.

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;
use tranship::component::{Returns, WhenDown};

/// The wires of one kind: each one's name with its line, and its description.
pub(crate) type Wires = BTreeMap<Spanned<String>, Wire>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub name: Option<Spanned<String>>,
    pub manager: Option<Spanned<toml::Table>>,
    #[serde(default)]
    pub component: BTreeMap<Spanned<String>, Component>,
    #[serde(default)]
    pub channel: Wires,
    #[serde(default)]
    pub topic: Wires,
    #[serde(default)]
    pub queue: Wires,
    #[serde(default)]
    pub service: Wires,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Component {
    pub run: Spanned<Vec<String>>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub inherit: Vec<String>,
    pub replicas: Option<Spanned<u32>>,
    #[serde(default)]
    pub ends: BTreeMap<String, Spanned<String>>,
    pub stdin: Option<Spanned<String>>,
    pub stdout: Option<Spanned<String>>,
    pub frame: Option<Spanned<String>>,
    #[serde(default)]
    pub listen: Vec<Spanned<String>>,
    pub restart: Option<Returns>,
    pub pause: Option<Spanned<String>>,
    pub longest_pause: Option<Spanned<String>>,
    pub tries: Option<Spanned<u32>>,
    #[serde(default)]
    pub after: Vec<Spanned<String>>,
    pub ready_in: Option<Spanned<String>>,
    pub stop_in: Option<Spanned<String>>,
    #[serde(default)]
    pub background: bool,
    pub quota: Option<Spanned<String>>,
    pub priority: Option<i32>,
    pub target: Option<Spanned<f64>>,
    #[serde(default)]
    pub sandbox: Sandbox,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sandbox {
    #[serde(default)]
    pub read: Vec<Spanned<String>>,
    #[serde(default)]
    pub write: Vec<Spanned<String>>,
    #[serde(default)]
    pub files: Files,
    #[serde(default)]
    pub network: bool,
    #[serde(default)]
    pub processes: bool,
    #[serde(default)]
    pub system_calls: Calls,
    #[serde(default)]
    pub lock: bool,
    pub uid: Option<Spanned<u32>>,
    pub gid: Option<Spanned<u32>>,
    #[serde(default)]
    pub limits: Limits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Files {
    #[default]
    Listed,
    Any,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Calls {
    #[default]
    Usual,
    Any,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub memory: Option<Spanned<String>>,
    pub descriptors: Option<u64>,
    pub processes: Option<u64>,
    pub file_size: Option<Spanned<String>>,
    pub cpu: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wire {
    pub from: Spanned<Names>,
    pub to: Spanned<Names>,
    pub pool: Option<Spanned<String>>,
    pub trust: Option<Spanned<String>>,
    pub depth: Option<Spanned<u32>>,
    #[serde(default)]
    pub when_down: WhenDown,
    #[serde(default)]
    pub when_full: Full,
    pub min: Option<Spanned<String>>,
    pub priority: Option<i32>,
    pub target: Option<Spanned<f64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Full {
    #[default]
    Wait,
    Drop,
}

/// A name, or a list of names.
#[derive(Debug)]
pub(crate) struct Names(pub Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Names, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a component, or a list of names")
            }

            fn visit_str<E: de::Error>(self, one: &str) -> Result<Names, E> {
                Ok(Names(vec![one.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut many: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = many.next_element()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }
        from.deserialize_any(OneOrMany)
    }
}
