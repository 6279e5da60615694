//! Circles: of dependencies, and of channels that all wait.

use super::finder::Finder;
use crate::file::File;
use crate::program::{Component, Kind, Wire};
use tranship::component::WhenDown;

pub(super) fn of_dependencies(find: &mut Finder<'_>, file: &File, components: &[Component]) {
    let edges: Vec<_> = components.iter().map(|c| c.rules.after.clone()).collect();
    let Some(circle) = circle(&edges) else {
        return;
    };
    let names = names(&circle, components);
    let first = file.component.keys().nth(circle[0]);
    if let Some(first) = first {
        find.fault(
            first,
            format!(
                "components wait for each other to be ready, and none would be started: {names}"
            ),
        );
    }
}

/// A circle of senders that each wait for the next can stop for good when all of its channels are full.
pub(super) fn without_room(find: &mut Finder<'_>, wires: &[Wire], components: &[Component]) {
    let mut edges = vec![Vec::new(); components.len()];
    let waits = |wire: &&Wire| {
        matches!(wire.kind, Kind::Channel | Kind::Queue)
            && wire.when_down == WhenDown::Wait
            && !wire.drops
    };
    for wire in wires.iter().filter(waits) {
        for from in &wire.from {
            edges[*from].extend(&wire.to);
        }
    }
    let Some(circle) = circle(&edges) else {
        return;
    };
    let part_of = |wire: &&Wire| {
        waits(wire)
            && wire.from.iter().any(|c| circle.contains(c))
            && wire.to.iter().any(|c| circle.contains(c))
    };
    let inside: Vec<&Wire> = wires.iter().filter(part_of).collect();
    let line = inside.iter().map(|wire| wire.line).min().unwrap_or(1);
    let all: Vec<_> = inside.iter().map(|wire| wire.name.as_str()).collect();
    find.fault_at(
        line,
        format!(
            "a circle without room: {}. When {} are full, all of them wait for ever. Give one of them when_full = \"drop\", \
             or make it a service",
            names(&circle, components),
            all.join(" and ")
        ),
    );
}

fn names(circle: &[usize], components: &[Component]) -> String {
    let names = circle.iter().chain(circle.first());
    let names: Vec<_> = names.map(|at| components[*at].name.as_str()).collect();
    names.join(" -> ")
}

/// Returns a circle of a graph, if it has one.
fn circle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    // 0: not seen, 1: on the path, 2: done.
    let mut seen = vec![0u8; edges.len()];
    for start in 0..edges.len() {
        let mut path: Vec<(usize, usize)> = Vec::new();
        if seen[start] == 0 {
            seen[start] = 1;
            path.push((start, 0));
        }
        while let Some((at, next)) = path.last_mut() {
            let Some(to) = edges[*at].get(*next).copied() else {
                seen[*at] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            match seen[to] {
                0 => {
                    seen[to] = 1;
                    path.push((to, 0));
                }
                1 => {
                    let all = path.iter().map(|(at, _)| *at);
                    return Some(all.skip_while(|at| *at != to).collect());
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::circle;

    #[test]
    fn circles_are_found_and_nothing_else() {
        assert_eq!(circle(&[vec![1, 2], vec![3], vec![3], vec![]]), None);
        assert_eq!(
            circle(&[vec![1], vec![2, 3], vec![], vec![1]]),
            Some(vec![1, 3])
        );
        assert_eq!(circle(&[vec![0]]), Some(vec![0]));
    }
}
