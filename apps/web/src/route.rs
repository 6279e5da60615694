//! The table of paths: which component answers.

use crate::request::{Request, copy_record};
use crate::stage::{Outs, Stage, To};
use crate::word::Word;
use anyhow::{Result, bail};
use tranship::Body;

/// The component.
#[derive(Debug)]
pub struct Route {
    record: Vec<u8>,
    table: Vec<(Vec<u8>, To)>,
}

impl Route {
    /// Makes the component of rules `PREFIX=COMPONENT`. The longest prefix of a path counts.
    ///
    /// # Errors
    /// A rule of another form, and a component that answers nothing.
    pub fn new(rules: &[String]) -> Result<Route> {
        let mut table = Vec::new();
        for rule in rules {
            let parts = rule
                .rsplit_once('=')
                .filter(|(prefix, _)| prefix.starts_with('/'));
            let Some((prefix, to)) = parts else {
                bail!("route {rule:?}: it must be PREFIX=COMPONENT, and PREFIX begins with `/`");
            };
            let to = match To::of(to) {
                Some(to @ (To::Cache | To::Static | To::Dynamic | To::Fastcgi)) => to,
                _ => bail!("route {rule:?}: {to:?} is not cache, static, dynamic or fastcgi"),
            };
            table.push((prefix.as_bytes().to_vec(), to));
        }
        table.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(Route {
            record: Vec::new(),
            table,
        })
    }
}

impl Stage for Route {
    fn take(&mut self, _: To, word: Word, body: Body, outs: &mut Outs) {
        let request = match copy_record(&body, &mut self.record) {
            true => Request::read(&self.record),
            false => None,
        };
        let Some(request) = request else {
            return outs.answer(word, 500);
        };
        let mut rules = self.table.iter();
        match rules.find(|(prefix, _)| request.path.starts_with(prefix)) {
            Some((_, to)) => outs.send(*to, word, body),
            None => outs.answer(word, 404),
        }
    }
}
