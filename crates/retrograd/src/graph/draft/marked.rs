//! A graph of GraphML or GML: which of its attributes are used, and how.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, everything};
use crate::family::draft::{InitOptions, counted, some};
use crate::graph::data::{EdgeListFiles, Marked, number, read_marked};
use crate::graph::task::Predict;
use crate::{Error, Result};

/// More different texts than these are names rather than kinds.
const MOST_CATEGORIES: usize = 32;

/// What is used of nodes' attributes, over one graph or many.
#[derive(Default)]
pub(super) struct Survey {
    nodes: usize,
    of: BTreeMap<String, Seen>,
}

#[derive(Default)]
struct Seen {
    /// Nodes that have it, and those whose value is a number.
    present: usize,
    numbers: usize,
    /// The different texts, not many more than are needed to see that they are too many.
    texts: BTreeSet<String>,
}

impl Survey {
    /// Looks at the nodes of a graph.
    pub(super) fn add(&mut self, graph: &Marked) {
        let rows = graph.nodes.len();
        self.nodes += rows;
        for name in graph.of_nodes.names() {
            let seen = self.of.entry(name.clone()).or_default();
            for (text, count) in graph.of_nodes.counts(name, rows) {
                seen.present += count;
                seen.numbers += if number(text).is_some() { count } else { 0 };
                if seen.texts.len() <= MOST_CATEGORIES {
                    seen.texts.insert(text.to_string());
                }
            }
        }
    }

    /// Numbers that every node has, texts that are kinds, and what is to be said about the rest.
    #[allow(clippy::type_complexity, reason = "three results, used once each")]
    pub(super) fn chosen(
        &self,
        but: Option<&str>,
    ) -> (Vec<String>, BTreeMap<String, Vec<String>>, Vec<Finding>) {
        let (mut numbers, mut categories, mut left) = (Vec::new(), BTreeMap::new(), Vec::new());
        for (name, seen) in self
            .of
            .iter()
            .filter(|(name, _)| Some(name.as_str()) != but)
        {
            let kinds = seen.texts.len();
            if seen.numbers == self.nodes && kinds > 1 {
                numbers.push(name.clone());
            } else if seen.numbers < seen.present
                && (2..=MOST_CATEGORIES).contains(&kinds)
                && 2 * kinds <= self.nodes
            {
                categories.insert(name.clone(), seen.texts.iter().cloned().collect());
            } else {
                left.push(name.as_str());
            }
        }
        let mut findings = Vec::new();
        if !numbers.is_empty() {
            findings.push(("numbers", some(numbers.iter().map(String::as_str))));
        }
        if !categories.is_empty() {
            let each = categories
                .iter()
                .map(|(name, known): (&String, &Vec<String>)| {
                    format!("{name} ({})", some(known.iter().map(String::as_str)))
                });
            let each: Vec<String> = each.collect();
            findings.push(("categories", each.join("; ")));
        }
        if !left.is_empty() {
            let why = "names, always the same, or not there for every node";
            findings.push(("left out", format!("{} ({why})", some(left))));
        }
        (numbers, categories, findings)
    }
}

/// The file, and what is used of it.
pub(super) fn files(options: &InitOptions) -> Result<(EdgeListFiles, Vec<Finding>)> {
    let path = &options.data;
    for (option, given) in [
        ("--features", options.features.is_some()),
        ("--labels", options.labels.is_some()),
        ("--directed", options.directed),
        ("--kan", options.kan),
        ("--task", options.task.is_some()),
    ] {
        if given {
            let problem = format!("{} says it itself; --target names a class", path.display());
            return Err(Error::refused(option, problem));
        }
    }
    let graph = read_marked(path)?;
    let mut survey = Survey::default();
    survey.add(&graph);
    let target = options.target.as_deref();
    if target.is_none() && !options.links {
        let names = graph.of_nodes.names();
        let known = match names.is_empty() {
            true => "they have none".to_string(),
            false => format!("one of {}", some(names.iter().map(String::as_str))),
        };
        let problem = format!(
            "{}, {}: needs --target ATTRIBUTE, the class of its nodes ({known}), or --links",
            path.display(),
            counted(graph.nodes.len(), "node")
        );
        return Err(Error::refused("init", problem));
    }
    let (numbers, categories, findings) = survey.chosen(target);
    let files = EdgeListFiles {
        numbers,
        categories,
        label: target.map(String::from),
        predict: match options.links {
            true => Predict::Links,
            false => Predict::Nodes,
        },
        ..everything(path, None, None)
    };
    Ok((files, findings))
}
