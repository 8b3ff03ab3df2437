//! GraphML: a reader of the XML that it needs, and of the elements that are graphs.
//!
//! Keys with their defaults, nodes, edges, and data of both and of the graph. What other programs add
//! beside (`y:ShapeNode` …) is passed over. Graphs within nodes and hyperedges are refused.

use std::collections::HashMap;
use std::path::Path;

use super::{Building, Marked, unescape};
use crate::data::files::quote;
use crate::graph::data::line;
use crate::{Error, Result};

/// What stands between `<` and `>`, or between two of these.
enum Piece<'a> {
    Open {
        name: &'a str,
        attributes: Vec<(&'a str, String)>,
        closed: bool,
    },
    Close(&'a str),
    Text(String),
}

/// The pieces of an XML text in their order.
struct Pieces<'a> {
    path: &'a Path,
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Pieces<'a> {
    fn wrong(&self, problem: impl std::fmt::Display) -> Error {
        Error::file(self.path, line(self.line), problem)
    }

    /// Everything up to a mark, which is passed over.
    fn up_to(&mut self, mark: &str, what: &str) -> Result<&'a str> {
        let rest = &self.text[self.at..];
        let Some(end) = rest.find(mark) else {
            return Err(self.wrong(format!("{what} has no end, needs {mark}")));
        };
        self.line += rest[..end].matches('\n').count();
        self.at += end + mark.len();
        Ok(&rest[..end])
    }

    fn next(&mut self) -> Result<Option<Piece<'a>>> {
        loop {
            let rest = &self.text[self.at..];
            if rest.is_empty() {
                return Ok(None);
            }
            if rest.starts_with("<!--") {
                self.at += 4;
                self.up_to("-->", "a comment")?;
            } else if rest.starts_with("<![CDATA[") {
                self.at += 9;
                return Ok(Some(Piece::Text(self.up_to("]]>", "CDATA")?.to_string())));
            } else if rest.starts_with("<?") {
                self.up_to("?>", "an instruction")?;
            } else if rest.starts_with("<!") {
                let inside = self.up_to(">", "a declaration")?;
                if inside.contains('[') {
                    return Err(self.wrong("a declaration of entities, needs GraphML without one"));
                }
            } else if rest.starts_with('<') {
                return self.tag().map(Some);
            } else {
                let end = rest.find('<').unwrap_or(rest.len());
                let text = &rest[..end];
                let plain = unescape(text).ok_or_else(|| self.entity(text))?;
                self.line += text.matches('\n').count();
                self.at += end;
                if !plain.trim().is_empty() {
                    return Ok(Some(Piece::Text(plain)));
                }
            }
        }
    }

    fn entity(&self, text: &str) -> Error {
        let from = text.find('&').unwrap_or(0);
        let shown: String = text[from..].chars().take(12).collect();
        let problem = format!(
            "got {}, needs &lt; &gt; &amp; &quot; &apos; or a character's number",
            quote(&shown)
        );
        self.wrong(problem)
    }

    /// A tag; `>` within quotes belongs to them.
    fn tag(&mut self) -> Result<Piece<'a>> {
        let rest = &self.text[self.at..];
        let mut quoted = None;
        let end = rest.char_indices().find(|&(_, c)| match quoted {
            Some(open) => {
                if c == open {
                    quoted = None;
                }
                false
            }
            None if c == '"' || c == '\'' => {
                quoted = Some(c);
                false
            }
            None => c == '>',
        });
        let Some((end, _)) = end else {
            return Err(self.wrong("a tag has no end, needs >"));
        };
        let inside = &rest[1..end];
        let piece = match inside.strip_prefix('/') {
            Some(name) => Piece::Close(local(name.trim())),
            None => {
                let closed = inside.ends_with('/');
                let inside = inside.strip_suffix('/').unwrap_or(inside);
                let (name, attributes) = match inside.find(char::is_whitespace) {
                    Some(at) => (&inside[..at], self.attributes(&inside[at..])?),
                    None => (inside, Vec::new()),
                };
                Piece::Open {
                    name: local(name),
                    attributes,
                    closed,
                }
            }
        };
        self.line += rest[..end].matches('\n').count();
        self.at += end + 1;
        Ok(piece)
    }

    fn attributes(&self, text: &'a str) -> Result<Vec<(&'a str, String)>> {
        let mut rest = text.trim_start();
        let mut attributes = Vec::new();
        while !rest.is_empty() {
            let parts = rest.split_once('=').and_then(|(name, value)| {
                let value = value.trim_start();
                let mark = value.chars().next().filter(|&c| c == '"' || c == '\'')?;
                let (value, after) = value[1..].split_once(mark)?;
                Some((name.trim(), value, after.trim_start()))
            });
            let Some((name, value, after)) = parts else {
                let shown: String = rest.chars().take(20).collect();
                let problem = format!("got {}, needs name=\"value\"", quote(&shown));
                return Err(self.wrong(problem));
            };
            let value = unescape(value).ok_or_else(|| self.entity(value))?;
            attributes.push((name, value));
            rest = after;
        }
        Ok(attributes)
    }
}

/// A name without its namespace.
fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

/// What a key declares.
struct Key {
    name: String,
    of: String,
    default: Option<String>,
}

/// To whom a piece of data belongs.
#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Graph,
    Node(usize),
    Edge(usize),
}

struct Reader<'a> {
    pieces: Pieces<'a>,
    keys: HashMap<String, Key>,
    building: Building,
    /// Open elements from the outside in.
    open: Vec<&'a str>,
    owner: Owner,
    /// The key whose data or default is being read, and its text.
    data: Option<(String, String)>,
    graphs: usize,
}

/// Reads the one graph of a file.
pub(super) fn read(path: &Path, text: &str) -> Result<Marked> {
    let mut reader = Reader {
        pieces: Pieces {
            path,
            text,
            at: 0,
            line: 0,
        },
        keys: HashMap::new(),
        building: Building::default(),
        open: Vec::new(),
        owner: Owner::Graph,
        data: None,
        graphs: 0,
    };
    while let Some(piece) = reader.pieces.next()? {
        match piece {
            Piece::Open {
                name,
                attributes,
                closed,
            } => {
                reader.opened(name, &attributes)?;
                reader.open.push(name);
                if closed {
                    reader.closed(name)?;
                }
            }
            Piece::Close(name) => reader.closed(name)?,
            Piece::Text(text) => reader.text(&text),
        }
    }
    reader.end()
}

impl Reader<'_> {
    /// Whether what is open lies directly within such elements.
    fn within(&self, names: &[&str]) -> bool {
        self.open.last().is_some_and(|last| names.contains(last))
    }

    fn opened(&mut self, name: &str, attributes: &[(&str, String)]) -> Result<()> {
        let get = |wanted: &str| {
            let found = attributes.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let needed = |reader: &Self, wanted: &str| {
            get(wanted).ok_or_else(|| {
                let problem = format!("a {name} without {wanted}=\"…\", needs one");
                reader.pieces.wrong(problem)
            })
        };
        if self.open.is_empty() && name != "graphml" {
            let problem = format!("the element {}, needs graphml", quote(name));
            return Err(self.pieces.wrong(problem));
        }
        let line = self.pieces.line;
        match name {
            "key" if self.within(&["graphml"]) => {
                let id = needed(self, "id")?;
                let key = Key {
                    name: get("attr.name").unwrap_or_else(|| id.clone()),
                    of: get("for").unwrap_or_else(|| "all".into()),
                    default: None,
                };
                self.data = Some((id.clone(), String::new()));
                self.keys.insert(id, key);
            }
            "graph" => {
                self.graphs += 1;
                if self.graphs > 1 {
                    let problem = match self.open.contains(&"node") {
                        true => "a graph within a node, needs a graph of plain nodes",
                        false => "a second graph, needs one; a folder may have many files",
                    };
                    return Err(self.pieces.wrong(problem));
                }
                self.building.graph.directed = get("edgedefault").is_some_and(|d| d == "directed");
            }
            "node" if self.within(&["graph"]) => {
                let id = needed(self, "id")?;
                let path = self.pieces.path;
                self.owner = Owner::Node(self.building.node(path, &id, line)?);
            }
            "edge" if self.within(&["graph"]) => {
                let ends = [needed(self, "source")?, needed(self, "target")?];
                let other = match get("directed").as_deref() {
                    Some("true") => !self.building.graph.directed,
                    Some("false") => self.building.graph.directed,
                    _ => false,
                };
                if other {
                    let problem = "an edge that goes otherwise than edgedefault says, needs all of \
                                   them directed or none";
                    return Err(self.pieces.wrong(problem));
                }
                self.owner = Owner::Edge(self.building.edge(ends, line));
            }
            "hyperedge" => {
                return Err(self.pieces.wrong("a hyperedge, needs edges of two nodes"));
            }
            "data" if self.within(&["graph", "node", "edge"]) => {
                let key = needed(self, "key")?;
                if !self.keys.contains_key(&key) {
                    let problem = format!("the key {} is declared nowhere", quote(&key));
                    return Err(self.pieces.wrong(problem));
                }
                self.data = Some((key, String::new()));
            }
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        // The text of an element within it is not the datum's.
        if self.within(&["data", "default"])
            && let Some((_, datum)) = &mut self.data
        {
            datum.push_str(text);
        }
    }

    fn closed(&mut self, name: &str) -> Result<()> {
        if self.open.pop() != Some(name) {
            let problem = format!("</{name}> where another element is open");
            return Err(self.pieces.wrong(problem));
        }
        match name {
            "default" if self.within(&["key"]) => {
                if let Some((id, text)) = &mut self.data
                    && let Some(key) = self.keys.get_mut(id)
                {
                    key.default = Some(std::mem::take(text).trim().to_string());
                }
            }
            "key" => self.data = None,
            "data" if self.within(&["graph", "node", "edge"]) => {
                if let Some((id, text)) = self.data.take() {
                    let name = self.keys[&id].name.clone();
                    let text = text.trim().to_string();
                    let graph = &mut self.building.graph;
                    match self.owner {
                        Owner::Graph => graph.of_graph.push((name, text)),
                        Owner::Node(row) => graph.of_nodes.set(row, &name, text),
                        Owner::Edge(row) => graph.of_edges.set(row, &name, text),
                    }
                }
            }
            "node" | "edge" if self.within(&["graph"]) => self.owner = Owner::Graph,
            _ => {}
        }
        Ok(())
    }

    fn end(mut self) -> Result<Marked> {
        if let Some(open) = self.open.last() {
            return Err(self.pieces.wrong(format!("the file ends within <{open}>")));
        }
        if self.graphs == 0 {
            return Err(self.pieces.wrong("no graph, needs one"));
        }
        let mut keys: Vec<&Key> = self.keys.values().collect();
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        let graph = &mut self.building.graph;
        for key in keys {
            if let Some(default) = &key.default {
                if key.of == "node" || key.of == "all" {
                    graph.of_nodes.set_default(&key.name, default);
                }
                if key.of == "edge" || key.of == "all" {
                    graph.of_edges.set_default(&key.name, default);
                }
            }
        }
        self.building.end(self.pieces.path)
    }
}
