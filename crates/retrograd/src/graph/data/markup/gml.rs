//! GML: keys with numbers, quoted texts, or lists of the same in brackets.
//!
//! Nodes are known by their labels where each has one of its own, as NetworkX knows them, otherwise by
//! their ids. Lists within nodes and edges (`graphics [ … ]`) are passed over.

use std::path::Path;

use super::{Building, Marked, unescape};
use crate::data::files::quote;
use crate::graph::data::line;
use crate::{Error, Result};

/// Lists within lists: what a graph's file needs three of.
const DEEPEST: usize = 32;

/// A key and what follows it, with its line.
struct Entry {
    key: String,
    value: Value,
    line: usize,
}

enum Value {
    Text(String),
    List(Vec<Entry>),
}

enum Token<'a> {
    Word(&'a str),
    Quoted(String),
    Open,
    Close,
}

struct Tokens<'a> {
    path: &'a Path,
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Tokens<'a> {
    fn wrong(&self, problem: impl std::fmt::Display) -> Error {
        Error::file(self.path, line(self.line), problem)
    }

    fn next(&mut self) -> Result<Option<Token<'a>>> {
        loop {
            let rest = &self.text[self.at..];
            let Some(first) = rest.chars().next() else {
                return Ok(None);
            };
            let token = match first {
                '\n' => {
                    self.line += 1;
                    self.at += 1;
                    continue;
                }
                '#' => {
                    self.at += rest.find('\n').unwrap_or(rest.len());
                    continue;
                }
                c if c.is_whitespace() => {
                    self.at += c.len_utf8();
                    continue;
                }
                '[' | ']' => {
                    self.at += 1;
                    if first == '[' {
                        Token::Open
                    } else {
                        Token::Close
                    }
                }
                '"' => {
                    let Some(length) = rest[1..].find('"') else {
                        return Err(self.wrong("a text has no end, needs \""));
                    };
                    let inside = &rest[1..=length];
                    self.line += inside.matches('\n').count();
                    self.at += length + 2;
                    // What is no entity is what it looks like.
                    Token::Quoted(unescape(inside).unwrap_or_else(|| inside.to_string()))
                }
                _ => {
                    let ends = |c: char| c.is_whitespace() || "[]\"#".contains(c);
                    let length = rest.find(ends).unwrap_or(rest.len());
                    self.at += length;
                    Token::Word(&rest[..length])
                }
            };
            return Ok(Some(token));
        }
    }
}

/// The entries of a text, lists within lists.
fn entries(path: &Path, text: &str) -> Result<Vec<Entry>> {
    let mut tokens = Tokens {
        path,
        text,
        at: 0,
        line: 0,
    };
    // Lists that are open, each with the key that it will belong to and where that stands.
    let mut outer: Vec<(String, usize, Vec<Entry>)> = Vec::new();
    let mut list: Vec<Entry> = Vec::new();
    while let Some(token) = tokens.next()? {
        let key = match token {
            Token::Word(key) => key.to_string(),
            Token::Close => {
                let Some((key, line, before)) = outer.pop() else {
                    return Err(tokens.wrong("] without [ before it"));
                };
                let value = Value::List(std::mem::replace(&mut list, before));
                list.push(Entry { key, value, line });
                continue;
            }
            _ => return Err(tokens.wrong("a value without a key before it")),
        };
        let line = tokens.line;
        let value = match tokens.next()? {
            Some(Token::Word(word)) => Value::Text(word.to_string()),
            Some(Token::Quoted(text)) => Value::Text(text),
            Some(Token::Open) => {
                if outer.len() == DEEPEST {
                    return Err(tokens.wrong(format!("lists {DEEPEST} deep, needs fewer")));
                }
                outer.push((key, line, std::mem::take(&mut list)));
                continue;
            }
            Some(Token::Close) | None => {
                return Err(tokens.wrong(format!("the key {} has no value", quote(&key))));
            }
        };
        list.push(Entry { key, value, line });
    }
    match outer.last() {
        None => Ok(list),
        Some((key, line_of, _)) => {
            let problem = format!("the list of {} has no end, needs ]", quote(key));
            Err(Error::file(path, line(*line_of), problem))
        }
    }
}

fn text_of<'a>(list: &'a [Entry], wanted: &str) -> Option<&'a str> {
    list.iter().find_map(|entry| match &entry.value {
        Value::Text(text) if entry.key == wanted => Some(text.as_str()),
        _ => None,
    })
}

/// Reads the one graph of a file.
pub(super) fn read(path: &Path, text: &str) -> Result<Marked> {
    let mut graphs = Vec::new();
    for entry in entries(path, text)? {
        if let ("graph", Value::List(list)) = (entry.key.as_str(), entry.value) {
            graphs.push((entry.line, list));
        }
    }
    if graphs.len() != 1 {
        let (at, problem) = match graphs.get(1) {
            Some((at, _)) => (
                *at,
                "a second graph, needs one; a folder may have many files",
            ),
            None => (0, "no graph, needs graph [ … ]"),
        };
        return Err(Error::file(path, line(at), problem));
    }
    let (_, entries) = graphs.remove(0);
    let mut building = Building::default();
    let mut labels = Vec::new();
    for Entry {
        key,
        value,
        line: at,
    } in entries
    {
        let needed = |list: &[Entry], wanted: &str| {
            let text = text_of(list, wanted).map(ToString::to_string);
            text.ok_or_else(|| {
                let problem = format!("a list of {} without {wanted}, needs one", quote(&key));
                Error::file(path, line(at), problem)
            })
        };
        match (key.as_str(), value) {
            ("directed", Value::Text(text)) => building.graph.directed = text == "1",
            ("node", Value::List(list)) => {
                let id = needed(&list, "id")?;
                let row = building.node(path, &id, at)?;
                labels.push(text_of(&list, "label").map(ToString::to_string));
                let attributes = &mut building.graph.of_nodes;
                for entry in list.into_iter().filter(|e| e.key != "id") {
                    if let Value::Text(text) = entry.value {
                        attributes.set(row, &entry.key, text);
                    }
                }
            }
            ("edge", Value::List(list)) => {
                let ends = [needed(&list, "source")?, needed(&list, "target")?];
                let row = building.edge(ends, at);
                let attributes = &mut building.graph.of_edges;
                for entry in list {
                    if let Value::Text(text) = entry.value
                        && entry.key != "source"
                        && entry.key != "target"
                    {
                        attributes.set(row, &entry.key, text);
                    }
                }
            }
            (_, Value::Text(text)) => building.graph.of_graph.push((key, text)),
            _ => {}
        }
    }
    let mut graph = building.end(path)?;
    name_by_labels(&mut graph, labels);
    Ok(graph)
}

/// Labels that are all different are names, and no attribute any more.
fn name_by_labels(graph: &mut Marked, labels: Vec<Option<String>>) {
    let Some(names): Option<Vec<String>> = labels.into_iter().collect() else {
        return;
    };
    let different: std::collections::HashSet<&String> = names.iter().collect();
    if different.len() == names.len() && !names.is_empty() {
        graph.nodes = names;
        graph.of_nodes.forget("label");
    }
}
