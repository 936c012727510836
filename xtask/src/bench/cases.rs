//! The case table, the only place that knows shapes: group by group, each case with the peers it has targets for.

mod attention;
mod build;
mod conv;
mod data;
mod llm;
mod map;
mod matmul;
mod rows;
mod small;
mod train;

use tallow_bench_protocol::Case;

/// A case and what is wanted of it: (peer, Tallow's speed over the peer's).
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The case.
    pub case: Case,
    /// The targets.
    pub targets: Vec<(&'static str, f64)>,
}

/// A group: one section of docs/performance.md.
pub struct Group {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures, for the help text.
    pub about: &'static str,
    /// Its cases.
    pub entries: fn() -> Vec<Entry>,
}

/// All groups, in the page's order.
pub const GROUPS: [Group; 9] = [
    Group {
        name: "matmul",
        about: "Matrix products: square, one row, odd, batched, half precision",
        entries: matmul::entries,
    },
    Group { name: "map", about: "Arithmetic element by element", entries: map::entries },
    Group { name: "rows", about: "Norms and reductions over rows and columns of 4096 x 4096", entries: rows::entries },
    Group { name: "attention", about: "Causal attention of a prompt", entries: attention::entries },
    Group { name: "conv", about: "Convolutions of ResNet-50, MobileNet, Whisper and DCGAN", entries: conv::entries },
    Group { name: "train", about: "Forward and backward of small networks", entries: train::entries },
    Group { name: "small", about: "Overhead: a tiny operation, and a chain of a hundred", entries: small::entries },
    Group { name: "data", about: "Moving, picking and sorting", entries: data::entries },
    Group { name: "llm", about: "SmolLM2-135M-Instruct in Q4_1, greedy", entries: llm::entries },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn cases_have_names_of_their_own_and_floors() {
        for group in &GROUPS {
            let entries = (group.entries)();
            let names: HashSet<&str> = entries.iter().map(|entry| entry.case.name.as_str()).collect();
            assert_eq!(names.len(), entries.len(), "{}", group.name);
            for Entry { case, targets } in &entries {
                assert_eq!(case.group, group.name);
                assert!(case.bytes > 0. && case.flops >= 0. && case.tolerance >= 0., "{}", case.name);
                assert!(case.name.chars().all(|c| c != '|' && c != '\n'), "{} does not fit a table", case.name);
                assert!(targets.iter().all(|(peer, ratio)| crate::bench::peers::title(peer).is_some() && *ratio > 0.));
            }
        }
    }
}
