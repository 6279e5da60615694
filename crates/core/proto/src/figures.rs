//! Parts of the table of figures (`stat.rs`): a column's name, kind and unit, and a record's values and words.

use crate::{ChannelId, DomainId, HogAction, NameKind, PoolId, Pressure, Role, Trust};

/// Behaviour of a figure over time, and how figures of several objects are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A name, a setting or a state. It is no metric.
    Fact,
    /// Goes up and down. Figures of several objects are added.
    Gauge,
    /// Goes up and down. The largest figure stands for several objects.
    Most,
    /// Only rises as long as the object lives. Figures of several objects are added.
    Counter,
}

/// One figure of a record: a line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// The name in Rust, JSON and Python. It ends in the unit.
    pub name: &'static str,
    /// The figure's kind.
    pub kind: Kind,
    /// Only the statistics page has this figure: it needs repeated looks.
    pub page_only: bool,
    /// The metric's name without `tranship_`, if it is not made of the record's name and the figure's.
    pub metric: Option<&'static str>,
    /// The type in Python.
    pub python: &'static str,
    /// The meaning, one sentence.
    pub help: &'static str,
}

/// Unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A plain number.
    Count,
    /// Bytes.
    Bytes,
    /// Time: so many of them are one second.
    Time(u64),
    /// Millionths of a whole.
    Ppm,
}

impl Figure {
    /// Returns the unit, and the name without it.
    fn split(&self) -> (Unit, &'static str) {
        let suffixes = [
            ("_bytes", Unit::Bytes),
            ("_bytes_per_user", Unit::Bytes),
            ("_ns", Unit::Time(1_000_000_000)),
            ("_us", Unit::Time(1_000_000)),
            ("_ms", Unit::Time(1000)),
            ("_s", Unit::Time(1)),
            ("_ppm", Unit::Ppm),
        ];
        let found = suffixes
            .iter()
            .find_map(|(suffix, unit)| Some((*unit, self.name.strip_suffix(suffix)?)));
        let whole = match self.name {
            "bytes" => Unit::Bytes,
            _ => Unit::Count,
        };
        found.unwrap_or((whole, self.name))
    }

    /// Returns the unit.
    pub fn unit(&self) -> Unit {
        self.split().0
    }

    /// Returns the name without its unit: the heading for people.
    pub fn title(&self) -> &'static str {
        self.split().1
    }

    /// Returns the unit's word, if the figure does not count things.
    pub fn unit_name(&self) -> &'static str {
        match self.unit() {
            Unit::Count => "",
            Unit::Bytes => "bytes",
            Unit::Time(1) => "s",
            Unit::Time(1000) => "ms",
            Unit::Time(1_000_000) => "us",
            Unit::Time(_) => "ns",
            Unit::Ppm => "millionths",
        }
    }

    /// Returns the metric's name in OpenMetrics, without the suffix of its kind, and its unit there.
    pub fn metric_name(&self, record: &str) -> Option<(String, Option<&'static str>)> {
        if self.kind == Kind::Fact || self.page_only {
            return None;
        }
        let unit = match self.unit() {
            Unit::Count => None,
            Unit::Bytes => Some("bytes"),
            Unit::Time(_) => Some("seconds"),
            Unit::Ppm => Some("ratio"),
        };
        let own = format!("{record}_{}", self.title());
        let mut name = format!("tranship_{}", self.metric.unwrap_or(&own));
        if let Some(unit) = unit {
            name.push('_');
            name.push_str(unit);
        }
        Some((name, unit))
    }
}

/// Value of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// There is none.
    Absent,
    /// Yes or no.
    Flag(bool),
    /// A number in the figure's unit.
    Number(u64),
    /// A name, or a word for a state.
    Text(&'a str),
    /// A domain.
    Domain(DomainId),
    /// A pool or heap.
    Pool(PoolId),
    /// Pools.
    Pools(&'a [PoolId]),
    /// Figures that are there together or not at all.
    Record(&'a dyn Record),
}

/// A record of the table.
pub trait Record: std::fmt::Debug {
    /// Returns the table's lines for the record.
    fn figures(&self) -> &'static [Figure];
    /// Returns the values, in the table's order.
    fn values(&self) -> Vec<Value<'_>>;
}

impl<'a> dyn Record + 'a {
    /// Returns each figure with its value.
    pub fn each(&self) -> impl Iterator<Item = (&'static Figure, Value<'_>)> {
        self.figures().iter().zip(self.values())
    }
}

/// Pools of a channel that the statistics page names.
const POOLS: usize = 16;

/// Words and text of a record that is being written.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    pub words: Vec<u64>,
    pub text: Vec<u8>,
}

/// Words and text of a record that is being read; 0 after the last word.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    pub words: std::slice::Iter<'a, u64>,
    pub text: &'a [u8],
}

impl Reading<'_> {
    pub fn next(&mut self) -> u64 {
        self.words.next().copied().unwrap_or(0)
    }

    fn text(&mut self, bytes: u64) -> String {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let (text, rest) = self.text.split_at(bytes.min(self.text.len()));
        self.text = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

/// A type of figures.
pub(crate) trait Field: Sized {
    const PYTHON: &'static str;
    fn value(&self) -> Value<'_>;
    fn put(&self, to: &mut Writing);
    /// Reads it from a page. Trust: the page's writer; an impossible value has no record.
    fn take(from: &mut Reading<'_>) -> Option<Self>;
}

/// Types that take one word each. An optional value is stored as its word plus 1; 0 is no value.
macro_rules! words {
    ($($type:ty: $python:literal, |$is:ident| $value:expr, $word:expr, |$from:ident| $take:expr;)+) => { $(
        impl Field for $type {
            const PYTHON: &'static str = $python;
            fn value(&self) -> Value<'_> {
                let $is = *self;
                $value
            }
            fn put(&self, to: &mut Writing) {
                let $is = *self;
                to.words.push($word);
            }
            fn take(from: &mut Reading<'_>) -> Option<Self> {
                let $from = from.next();
                $take
            }
        }
        impl Field for Option<$type> {
            const PYTHON: &'static str = concat!($python, " | None");
            fn value(&self) -> Value<'_> {
                self.as_ref().map_or(Value::Absent, Field::value)
            }
            fn put(&self, to: &mut Writing) {
                to.words.push(self.map_or(0, |$is| u64::saturating_add($word, 1)));
            }
            fn take(from: &mut Reading<'_>) -> Option<Self> {
                let Some($from) = from.next().checked_sub(1) else {
                    return Some(None);
                };
                Some($take)
            }
        }
    )+ };
}

/// Returns a number that is too large as the largest that fits.
fn small(word: u64) -> u32 {
    u32::try_from(word).unwrap_or(u32::MAX)
}

/// Returns the entry of a list; an unknown one is none.
fn entry<T: Copy>(all: &[T], word: u64) -> Option<T> {
    all.get(usize::try_from(word).ok()?).copied()
}

const ROLES: [Role; 2] = [Role::Source, Role::Sink];
const ACTIONS: [HogAction; 4] = [
    HogAction::Report,
    HogAction::Throttle,
    HogAction::Disconnect,
    HogAction::Kill,
];

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Source => "source",
        Role::Sink => "sink",
    }
}

words! {
    u64: "int", |is| Value::Number(is), is, |word| Some(word);
    u32: "int", |is| Value::Number(is.into()), u64::from(is), |word| Some(small(word));
    bool: "bool", |is| Value::Flag(is), u64::from(is), |word| Some(word != 0);
    ChannelId: "int", |is| Value::Number(is.0.into()), u64::from(is.0), |word| Some(ChannelId(small(word)));
    DomainId: "int", |is| Value::Domain(is), u64::from(is.0), |word| Some(DomainId(small(word)));
    PoolId: "int", |is| Value::Pool(is), u64::from(is.0), |word| Some(PoolId(small(word)));
    Trust: "str", |is| Value::Text(is.name()), is as u64, |word| entry(&Trust::ALL, word);
    Role: "str", |is| Value::Text(role_name(is)), is as u64, |word| entry(&ROLES, word);
    NameKind: "str", |is| Value::Text(is.name()), is as u64, |word| Some(entry(&NameKind::ALL, word).unwrap_or_default());
    HogAction: "str", |is| Value::Text(is.name()), is as u64, |word| entry(&ACTIONS, word);
    Pressure: "str", |is| Value::Text(is.name()), is as u64, |word| Some(entry(&Pressure::ALL, word).unwrap_or_default());
}

impl Field for String {
    const PYTHON: &'static str = "str";
    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
    fn put(&self, to: &mut Writing) {
        to.words.push(self.len() as u64);
        to.text.extend(self.as_bytes());
    }
    fn take(from: &mut Reading<'_>) -> Option<Self> {
        let bytes = from.next();
        Some(from.text(bytes))
    }
}

impl Field for Option<String> {
    const PYTHON: &'static str = "str | None";
    fn value(&self) -> Value<'_> {
        self.as_deref().map_or(Value::Absent, Value::Text)
    }
    fn put(&self, to: &mut Writing) {
        let text = self.as_deref().unwrap_or("");
        to.words
            .push(self.as_ref().map_or(0, |text| text.len() as u64 + 1));
        to.text.extend(text.as_bytes());
    }
    fn take(from: &mut Reading<'_>) -> Option<Self> {
        let bytes = from.next().checked_sub(1);
        Some(bytes.map(|bytes| from.text(bytes)))
    }
}

impl Field for Vec<PoolId> {
    const PYTHON: &'static str = "list[int]";
    fn value(&self) -> Value<'_> {
        Value::Pools(self)
    }
    fn put(&self, to: &mut Writing) {
        let pools = self.iter().take(POOLS);
        to.words.push(pools.len() as u64);
        to.words.extend(pools.map(|pool| u64::from(pool.0)));
    }
    fn take(from: &mut Reading<'_>) -> Option<Self> {
        let pools = usize::try_from(from.next()).unwrap_or(0).min(POOLS);
        Some((0..pools).map(|_| PoolId(small(from.next()))).collect())
    }
}
