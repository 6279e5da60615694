//! Circles in a graph of files: its strongly connected components of two and more (Tarjan 1972).

use std::collections::{BTreeMap, BTreeSet};

/// File to file, with the names that are used.
pub(super) type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

pub(super) fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let mut search = Search {
        arrows,
        seen: BTreeMap::new(),
        low: BTreeMap::new(),
        stack: Vec::new(),
        found: Vec::new(),
    };
    for file in arrows.keys() {
        if !search.seen.contains_key(file.as_str()) {
            search.visit(file);
        }
    }
    search.found
}

struct Search<'a> {
    arrows: &'a Arrows,
    seen: BTreeMap<&'a str, usize>,
    low: BTreeMap<&'a str, usize>,
    stack: Vec<&'a str>,
    found: Vec<BTreeSet<String>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a str) {
        let number = self.seen.len();
        self.seen.insert(file, number);
        self.low.insert(file, number);
        self.stack.push(file);
        for to in self
            .arrows
            .get(file)
            .into_iter()
            .flatten()
            .map(|(to, _)| to)
        {
            let reached = match self.seen.get(to.as_str()) {
                None => {
                    self.visit(to);
                    self.low[to.as_str()]
                }
                Some(number) if self.stack.contains(&to.as_str()) => *number,
                Some(_) => continue,
            };
            let low = self.low[file].min(reached);
            self.low.insert(file, low);
        }
        if self.low[file] == number {
            let begin = self.stack.iter().position(|f| *f == file).unwrap_or(0);
            let circle: BTreeSet<String> = self.stack.drain(begin..).map(str::to_owned).collect();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
    }
}
