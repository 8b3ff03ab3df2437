//! An experiment for a graph of one's own: edges, features and labels.

use std::collections::HashSet;
use std::path::Path;

use super::data::{EdgeListFiles, NodeData, Split, read_edge_list, read_unlabelled};
use super::task::{LinkTask, NodeTask, Predict};
use super::{EdgeRule, Graph};
use crate::family::draft::{Draft, InitOptions, Place, counted, quoted, some, thousands};
use crate::train::Experiment;
use crate::{Error, Result};

/// Looks at the files of a graph and drafts its experiment.
pub(super) fn draft(options: &InitOptions, place: &Place) -> Result<Option<Draft>> {
    let (features, labels) = (options.features.as_deref(), options.labels.as_deref());
    if options.links {
        return links(&options.data, features, place).map(Some);
    }
    if features.is_none() && labels.is_none() {
        return Ok(None);
    }
    edge_list(&options.data, features, labels, options.directed, place).map(Some)
}

fn edge_list(
    edges: &Path,
    features: Option<&Path>,
    labels: Option<&Path>,
    directed: bool,
    place: &Place,
) -> Result<Draft> {
    let Some(labels) = labels else {
        let needed = "--labels FILE, a class per node in the order of the nodes' numbers or beside \
                      their names, or --links to predict links";
        return Err(Error::refused("init", format!("a graph needs {needed}")));
    };
    let mut files = everything(edges, features, Some(labels));
    let data = read_edge_list(&files, 0)?;
    let traits = Traits::of(data.batch.graph());
    files.undirected = !traits.symmetric && !directed;
    if data.class_names.len() < 2 {
        return Err(Error::invalid(
            labels.display().to_string(),
            counted(data.class_names.len(), "class"),
            "at least 2 to tell apart",
        ));
    }
    let found = Found {
        data: &data,
        traits: &traits,
        undirected: files.undirected,
        has_features: features.is_some(),
    };
    let text = found.text(edges, features, labels, place)?;
    // As training will read it.
    let (experiment, files) = files_of(&text, place)?;
    let data_again = read_edge_list(&files, experiment.train.seed)?;
    NodeTask::new(&experiment.model_as()?, data_again)?;
    Ok(Draft {
        text,
        findings: found.findings(),
        inputs: String::new(),
    })
}

/// A graph with classes of nodes, and what was seen in it.
struct Found<'a> {
    data: &'a NodeData,
    traits: &'a Traits,
    undirected: bool,
    has_features: bool,
}

impl Found<'_> {
    /// The experiment.
    fn text(
        &self,
        edges: &Path,
        features: Option<&Path>,
        labels: &Path,
        place: &Place,
    ) -> Result<String> {
        let (data, traits) = (self.data, self.traits);
        let (width, embedding) = match features {
            Some(_) => (
                format!("features = {}\n", data.batch.width()),
                String::new(),
            ),
            // Nodes are known by themselves alone.
            None => (
                String::new(),
                format!(
                    "{{ kind = \"embedding\", vocabulary = {}, out = 32 }},  # a row to learn for \
                     every node\n  ",
                    data.split.len()
                ),
            ),
        };
        let classes = data.class_names.len();
        let weighted = data.batch.edge_weights().is_some();
        let hidden = if data.split.len() < 1_000 { 16 } else { 32 };
        let mut rules = String::new();
        if self.undirected {
            rules += "undirected = true       # every edge goes both ways\n";
        }
        if traits.loops > 0 {
            rules += "self_loops = \"keep\"     # or \"drop\"; the default refuses them\n";
        }
        // An edge that stands in both directions, or a loop, comes twice when every edge is taken
        // both ways.
        if traits.repeated > 0 || (self.undirected && (traits.both_ways || traits.loops > 0)) {
            rules += "duplicates = \"drop\"     # or \"keep\"; the default refuses them\n";
        }
        let text = format!(
            "{head}\
         {width}\
         {edge_weight}\
         # Two graph convolutions: every node sees its neighbours, and theirs. \"sage\" and \"gat\"\n\
         # are other kinds.\n\
         layers = [\n  \
           {embedding}{{ kind = \"dropout\", p = 0.5 }},\n  \
           {{ kind = \"gcn\", out = {hidden} }},\n  \
           {{ kind = \"relu\" }},\n  \
           {{ kind = \"dropout\", p = 0.5 }},\n  \
           {{ kind = \"gcn\", out = {classes} }},  # one for every class\n\
         ]\n\
         \n\
         [data]\n\
         # Of the nodes with a class 60 % train, 20 % validate and 20 % test, drawn from the seed.\n\
         kind = \"edge_list\"\n\
         edges = {edges}\n\
         {features}\
         labels = {labels}       # a class per node; -1 or nothing where it is not known\n\
         {rules}\
         \n\
         [train]\n\
         epochs = 200\n\
         optimizer = {{ kind = \"adam\", lr = 0.01, weight_decay = 5e-4 }}\n",
            head = head(
                edges,
                &format!("classes of {}", counted(data.split.len(), "node")),
                place
            ),
            edge_weight = if weighted {
                "edge_weight = true      # the edges' weights\n"
            } else {
                ""
            },
            edges = quoted(&place.relative(edges)?),
            features = match features {
                Some(path) => format!("features = {}\n", quoted(&place.relative(path)?)),
                None => String::new(),
            },
            labels = quoted(&place.relative(labels)?),
        );
        Ok(text)
    }

    /// What was seen and chosen.
    fn findings(&self) -> Vec<(&'static str, String)> {
        let (data, traits) = (self.data, self.traits);
        let known = data.split.iter().filter(|&&s| s != Split::None).count();
        let classes = data.class_names.len();
        let weighted = data.batch.edge_weights().is_some();
        let mut findings = vec![(
            "graph",
            format!(
                "{}, {}{}, {}",
                counted(data.split.len(), "node"),
                counted(data.batch.graph().edges(), "edge"),
                if weighted { " with weights" } else { "" },
                match self.has_features {
                    true => format!("{} features a node", thousands(data.batch.width())),
                    false => "no features: an embedding learns 32 numbers a node".to_string(),
                }
            ),
        )];
        findings.extend(data.notes.iter().map(|note| ("reading", note.clone())));
        findings.push((
            "predicts",
            format!(
                "the class of a node, one of {classes} ({}); known for {}",
                some(data.class_names.iter().map(String::as_str)),
                thousands(known)
            ),
        ));
        let ways = match (traits.symmetric, self.undirected) {
            _ if data.batch.graph().edges() == 0 => {
                "none: every node is judged by its own features alone"
            }
            (true, _) => "both ways: every edge has its counterpart in the file",
            (_, true) => {
                "both ways: some edge has no counterpart in the file, so every one is taken both ways \
                      (--directed keeps them as they are)"
            }
            (_, false) => "one way, as --directed says",
        };
        findings.push(("edges", ways.to_string()));
        if traits.loops > 0 {
            let text = format!("{} from a node to itself", counted(traits.loops, "edge"));
            findings.push(("note", text));
        }
        if traits.repeated > 0 {
            let text = format!("{} that come twice", counted(traits.repeated, "edge"));
            findings.push(("note", text));
        }
        findings
    }
}

/// The files, read so that everything is kept, to see what is there.
fn everything(edges: &Path, features: Option<&Path>, labels: Option<&Path>) -> EdgeListFiles {
    EdgeListFiles {
        edges: edges.to_path_buf(),
        weight: None,
        edge_features: Vec::new(),
        features: features.map(Path::to_path_buf),
        labels: labels.map(Path::to_path_buf),
        predict: Predict::Nodes,
        undirected: false,
        self_loops: EdgeRule::Keep,
        duplicates: EdgeRule::Keep,
        neighbours: Vec::new(),
    }
}

/// How every file begins, up to what the model is.
fn head(edges: &Path, what: &str, place: &Place) -> String {
    let about = format!(
        "{}: {what}",
        edges.file_name().unwrap_or_default().to_string_lossy()
    );
    format!(
        "# Written by retrograd init. Change what you like; every setting that is not here has\n\
         # its default.\n\
         #\n\
         #   retrograd train {file}\n\
         \n\
         name = {name}\n\
         about = {about}\n\
         \n\
         [model]\n\
         family = \"graph\"\n",
        file = place.file.display(),
        name = quoted(&place.name),
        about = quoted(&about),
    )
}

/// The experiment that a text describes, and its files as training will find them.
fn files_of(text: &str, place: &Place) -> Result<(Experiment, EdgeListFiles)> {
    let experiment = place.experiment(text)?;
    let mut table = experiment.data.clone();
    table.remove("kind");
    let files: Result<EdgeListFiles, toml::de::Error> = table.try_into();
    let mut files = files.map_err(|e| Error::file(&place.file, "[data]", e.message()))?;
    files.edges = experiment.resolve(&files.edges);
    for path in [&mut files.features, &mut files.labels] {
        *path = path.as_ref().map(|path| experiment.resolve(path));
    }
    Ok((experiment, files))
}

/// Looks at the edges of a graph and drafts an experiment that predicts links.
fn links(edges: &Path, features: Option<&Path>, place: &Place) -> Result<Draft> {
    let mut files = everything(edges, features, None);
    let all = read_unlabelled(&files)?;
    let traits = Traits::of(all.graph());
    let weighted = all.edge_weights().is_some();
    files.predict = Predict::Links;
    let batch = read_unlabelled(&files)?;
    let (nodes, count) = (batch.graph().nodes(), batch.graph().edges() / 2);
    let mut rules = String::new();
    if traits.loops > 0 {
        rules += "self_loops = \"drop\"     # the link of a node to itself is not predicted\n";
    }
    if traits.repeated > 0 {
        rules += "duplicates = \"drop\"     # the default refuses them\n";
    }
    let (width, first) = match features {
        Some(_) => (format!("features = {}\n", batch.width()), String::new()),
        None => (
            String::new(),
            format!(
                "\n  {{ kind = \"embedding\", vocabulary = {nodes}, out = 32 }},  # a row to learn \
                 for every node"
            ),
        ),
    };
    let text = format!(
        "{head}\
         {width}\
         # Two graph convolutions make a row of 16 for every node; two nodes are likely linked if\n\
         # the product of their rows is large.\n\
         layers = [{first}\n  \
           {{ kind = \"gcn\", out = 32 }},\n  \
           {{ kind = \"relu\" }},\n  \
           {{ kind = \"gcn\", out = 16 }},\n  \
           {{ kind = \"pair_dot\" }},\n\
         ]\n\
         \n\
         [data]\n\
         # Of the links 85 % train, 5 % validate and 10 % test, drawn from the seed; every step draws\n\
         # as many pairs that are no links.\n\
         kind = \"edge_list\"\n\
         predict = \"links\"\n\
         edges = {edges}{unused}\n\
         {features}\
         {rules}\
         \n\
         [train]\n\
         epochs = 200\n\
         optimizer = {{ kind = \"adam\", lr = 0.01 }}\n",
        head = head(
            edges,
            &format!("links between {}", counted(nodes, "node")),
            place
        ),
        edges = quoted(&place.relative(edges)?),
        unused = if weighted {
            "   # the third column is not used"
        } else {
            ""
        },
        features = match features {
            Some(path) => format!("features = {}\n", quoted(&place.relative(path)?)),
            None => String::new(),
        },
    );
    // As training will read it.
    let (experiment, files) = files_of(&text, place)?;
    let seed = experiment.train.seed;
    LinkTask::new(&experiment.model_as()?, read_unlabelled(&files)?, seed)?;

    let mut findings = vec![(
        "graph",
        format!("{}, {}", counted(nodes, "node"), counted(count, "link")),
    )];
    let (_, notes) = super::data::node_names(&files)?;
    findings.extend(notes.into_iter().map(|note| ("reading", note)));
    findings.push(("predicts", "whether two nodes are linked".to_string()));
    if weighted {
        findings.push((
            "note",
            "the third column, a weight, is not used".to_string(),
        ));
    }
    if traits.loops > 0 {
        let text = format!(
            "{} from a node to itself, left out",
            counted(traits.loops, "edge")
        );
        findings.push(("note", text));
    }
    Ok(Draft {
        text,
        findings,
        inputs: String::new(),
    })
}

/// What decides how edges are read.
struct Traits {
    /// Every edge has its counterpart.
    symmetric: bool,
    /// Some edge has.
    both_ways: bool,
    loops: usize,
    repeated: usize,
}

impl Traits {
    fn of(graph: &Graph) -> Self {
        let edges = || graph.sources().iter().zip(graph.targets());
        let set: HashSet<(u32, u32)> = edges().map(|(&s, &t)| (s, t)).collect();
        let counterpart = |&(s, t): &(u32, u32)| set.contains(&(t, s));
        let straight = || set.iter().filter(|(s, t)| s != t);
        Traits {
            symmetric: straight().all(counterpart),
            both_ways: straight().any(counterpart),
            loops: edges().filter(|(s, t)| s == t).count(),
            repeated: graph.edges() - set.len(),
        }
    }
}
