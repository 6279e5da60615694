//! One line of the doctor's answer.

use serde::Serialize;

/// Grade of a finding; the worst is the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// The feature is as it should be.
    Ok,
    /// tranship works, with the cost that is named.
    Weak,
    /// tranship does not work without it.
    Missing,
}

/// Finding: its cost, and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Finding {
    pub name: &'static str,
    pub state: State,
    pub value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// Makes a finding that all is well.
    pub(crate) fn ok(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            value: value.into(),
            cost: None,
            fix: None,
        }
    }

    /// Makes a finding of a feature that works with a drawback.
    pub(crate) fn weak(
        name: &'static str,
        value: impl Into<String>,
        cost: &str,
        fix: &str,
    ) -> Self {
        Self {
            state: State::Weak,
            ..Self::missing(name, value, cost, fix)
        }
    }

    /// Makes a finding of a feature that does not work.
    pub(crate) fn missing(
        name: &'static str,
        value: impl Into<String>,
        cost: &str,
        fix: &str,
    ) -> Self {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            name,
            state: State::Missing,
            value: value.into(),
            cost: some(cost),
            fix: some(fix),
        }
    }

    /// Makes a finding that is good if `good`, else weak.
    pub(crate) fn expect(
        good: bool,
        name: &'static str,
        value: impl Into<String>,
        cost: &str,
        fix: &str,
    ) -> Self {
        if good {
            Self::ok(name, value)
        } else {
            Self::weak(name, value, cost, fix)
        }
    }
}
