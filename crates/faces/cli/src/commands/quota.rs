//! `tranship quota`: quotas of pools and heaps.

use super::connect;
use super::view::SCHEMA;
use crate::args::QuotaAction;
use crate::exit::Answer;
use crate::output::{self, Table, size};
use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use serde_json::json;
use std::io::Write;
use tranship::ErrorKind;
use tranship::error::{Refusal, RefusalCode};
use tranship_proto::{DomainId, PoolId, StatRecord};

pub(crate) fn run(action: &QuotaAction) -> Result<Answer> {
    match action {
        QuotaAction::Show { target, view } => {
            let all = Account::all(&connect::look(&view.connect)?.admin().stat()?);
            let shown = match target {
                Some(target) => named(&all, target)?,
                None => all.iter().collect(),
            };
            show(&shown, view.json)?;
        }
        QuotaAction::Set { target, size, view } => {
            let domain = connect::look(&view.connect)?;
            let all = Account::all(&domain.admin().stat()?);
            let before = one(&all, target)?;
            if *size > before.max_bytes {
                bail!(
                    "{before} can never have more than {} bytes, its maximum; asked are {size}",
                    before.max_bytes
                );
            }
            let quota_bytes = match domain.admin().set_quota(PoolId(before.id), *size) {
                Ok(quota_bytes) => quota_bytes,
                Err(error) => return Err(not_set(before, error)),
            };
            let now = Account {
                quota_bytes,
                ..before.clone()
            };
            said(&now, before.quota_bytes, view.json)?;
        }
    }
    Ok(Answer::Yes)
}

/// Returns why a quota was not set. The pool may have ended since it was looked up.
fn not_set(of: &Account, error: tranship::Error) -> anyhow::Error {
    let refusal: Option<&Refusal> = error.find();
    match (error.kind(), refusal.map(|refusal| refusal.code)) {
        (_, Some(RefusalCode::NoSuchId)) => {
            anyhow!("{of} is gone: it ended before its quota was set")
        }
        (ErrorKind::Access, _) => anyhow::Error::new(error).context(format!(
            "the quota of {of}, which only root and the user who runs the manager may set"
        )),
        _ => anyhow::Error::new(error).context(format!("the quota of {of}")),
    }
}

/// A pool or a heap, with its quota.
#[derive(Clone, Serialize)]
struct Account {
    id: u32,
    kind: &'static str,
    name: String,
    domain: u32,
    domain_name: String,
    has_bytes: u64,
    quota_bytes: u64,
    max_bytes: u64,
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, id, name, .. } = self;
        write!(f, "{kind} {id} (`{name}` of {})", self.domain_name)
    }
}

impl Account {
    /// Returns in words what happens to callers that want more than is left.
    fn who_waits(&self) -> String {
        let (left, who) = (
            self.quota_bytes.saturating_sub(self.has_bytes),
            &self.domain_name,
        );
        match (self.kind, left) {
            _ if self.quota_bytes == self.max_bytes => String::new(),
            ("pool", 0) => format!(
                "; `alloc` of {who} waits for more memory until buffers are released or the quota is raised"
            ),
            ("pool", left) => format!("; `alloc` of {who} waits after {} more", size(left)),
            (_, left) => format!("; {who} gets {} more, and then no memory", size(left)),
        }
    }

    /// Returns the accounts whose owner is alive.
    fn all(records: &[StatRecord]) -> Vec<Account> {
        let owner = |id: DomainId| {
            let name = records.iter().find_map(|record| match record {
                StatRecord::Domain(domain) if domain.domain == id => Some(domain.name.clone()),
                _ => None,
            });
            (id.0, name.unwrap_or_else(|| format!("domain {}", id.0)))
        };
        let account = |record: &StatRecord| match record {
            StatRecord::Pool(pool) if pool.writer_alive => {
                let (domain, domain_name) = owner(pool.writer);
                Some(Account {
                    id: pool.pool.0,
                    kind: "pool",
                    name: pool.name.clone(),
                    domain,
                    domain_name,
                    has_bytes: pool.granted_bytes,
                    quota_bytes: pool.quota_bytes,
                    max_bytes: pool.max_bytes,
                })
            }
            StatRecord::Heap(heap) => {
                let (domain, domain_name) = owner(heap.owner);
                Some(Account {
                    id: heap.heap.0,
                    kind: "heap",
                    name: heap.name.clone(),
                    domain,
                    domain_name,
                    has_bytes: heap.admitted_bytes,
                    quota_bytes: heap.quota_bytes,
                    max_bytes: heap.max_bytes,
                })
            }
            _ => None,
        };
        records.iter().filter_map(account).collect()
    }
}

/// Returns those with that number, or else that name.
fn named<'a>(all: &'a [Account], target: &str) -> Result<Vec<&'a Account>> {
    let by_id = |account: &&Account| target.parse() == Ok(account.id);
    let mut found: Vec<_> = all.iter().filter(by_id).collect();
    if found.is_empty() {
        found = all.iter().filter(|a| a.name == target).collect();
    }
    if found.is_empty() {
        bail!(
            "there is no pool or heap `{target}`; `tranship quota show` lists the {} that there are",
            all.len()
        );
    }
    Ok(found)
}

fn one<'a>(all: &'a [Account], target: &str) -> Result<&'a Account> {
    match named(all, target)?[..] {
        [one] => Ok(one),
        ref many => {
            let all: Vec<_> = many.iter().map(ToString::to_string).collect();
            bail!(
                "{} are called `{target}`; say which by its number: {}",
                many.len(),
                all.join(", ")
            )
        }
    }
}

fn show(accounts: &[&Account], as_json: bool) -> Result<()> {
    if as_json {
        return output::json(&json!({ "schema": SCHEMA, "quotas": accounts }));
    }
    let mut table = Table::new(&[">id", "kind", "name", "owner", ">has", ">quota", ">max"]);
    for account in accounts {
        table.row(vec![
            account.id.to_string(),
            account.kind.to_owned(),
            account.name.clone(),
            account.domain_name.clone(),
            size(account.has_bytes),
            size(account.quota_bytes),
            size(account.max_bytes),
        ]);
    }
    Ok(table.print()?)
}

/// Prints the new quota and its effects: the memory in use now, the memory asked back, and the pools whose callers will
/// wait.
fn said(now: &Account, before_bytes: u64, as_json: bool) -> Result<()> {
    let surplus = now.has_bytes.saturating_sub(now.quota_bytes);
    if as_json {
        let mut answer = json!(now);
        answer["schema"] = json!(SCHEMA);
        answer["before_bytes"] = json!(before_bytes);
        answer["asked_back_bytes"] = json!(surplus);
        return output::json(&answer);
    }
    let mut out = output::stdout();
    let (before, quota) = (size(before_bytes), size(now.quota_bytes));
    write!(
        out,
        "{now}: {quota}, before {before}, used now {}",
        size(now.has_bytes)
    )?;
    if surplus > 0 {
        write!(out, "; it is asked to give {} back", size(surplus))?;
    }
    writeln!(out, "{}", now.who_waits())?;
    Ok(out.flush()?)
}
