//! An experiment for a graph of one's own: edges, features and labels.

mod folder;
mod marked;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use super::data::{EdgeListFiles, NodeData, Split, is_marked, read_edge_list, read_unlabelled};
use super::task::{LinkTask, NodeTask, Predict};
use super::{EdgeRule, Graph};
use crate::family::draft::{
    Draft, InitOptions, Place, counted, list, quoted, remark, some, thousands,
};
use crate::train::Experiment;
use crate::{Error, Result};

/// Looks at the files of a graph and drafts its experiment.
pub(super) fn draft(options: &InitOptions, place: &Place) -> Result<Option<Draft>> {
    let (features, labels) = (options.features.as_deref(), options.labels.as_deref());
    let data = &options.data;
    if options.bin.is_some() {
        let problem = format!("{} is no folder of images", data.display());
        return Err(Error::refused("--bin", problem));
    }
    if data.is_dir() {
        return folder::draft(options, place).map(Some);
    }
    if is_marked(data) {
        let (files, notes) = marked::files(options)?;
        return match files.predict {
            Predict::Links => links(files, &notes, place).map(Some),
            Predict::Nodes => nodes(files, &notes, options.directed, place).map(Some),
        };
    }
    if let (Some(_), true) = (options.task, options.links || labels.is_some()) {
        return Err(Error::refused(
            "--task",
            "nodes of a list of edges have classes",
        ));
    }
    if options.links {
        return links(everything(data, features, None), &[], place).map(Some);
    }
    if features.is_none() && labels.is_none() {
        return Ok(None);
    }
    if labels.is_none() {
        let needed = "--labels FILE, a class per node in the order of the nodes' numbers or beside \
                      their names, or --links to predict links";
        return Err(Error::refused("init", format!("a graph needs {needed}")));
    }
    let files = everything(data, features, labels);
    nodes(files, &[], options.directed, place).map(Some)
}

/// Whether a path is a graph, or a folder of graphs, by names alone.
pub(crate) fn takes(path: &Path) -> bool {
    match path.is_dir() {
        true => folder::takes(path),
        false => is_marked(path),
    }
}

fn nodes(files: EdgeListFiles, seen: &[Finding], directed: bool, place: &Place) -> Result<Draft> {
    let mut files = files;
    let data = read_edge_list(&files, 0)?;
    let traits = Traits::of(data.batch.graph());
    files.undirected = !traits.symmetric && !directed && !files.is_marked();
    if data.class_names.len() < 2 {
        return Err(Error::invalid(
            files
                .labels
                .as_ref()
                .unwrap_or(&files.edges)
                .display()
                .to_string(),
            counted(data.class_names.len(), "class"),
            "at least 2 to tell apart",
        ));
    }
    let found = Found {
        data: &data,
        traits: &traits,
        files: &files,
    };
    let text = found.text(place)?;
    // As training will read it.
    let (experiment, files) = files_of(&text, place)?;
    let data_again = read_edge_list(&files, experiment.train.seed)?;
    NodeTask::new(&experiment.model_as()?, data_again)?;
    let mut findings = found.findings();
    findings.extend(seen.iter().cloned());
    let inputs = match files.is_marked() && files.chosen().width() > 0 {
        true => place.relative(&files.edges)?,
        false => String::new(),
    };
    Ok(Draft {
        text,
        findings,
        inputs,
    })
}

/// A word and a sentence.
type Finding = (&'static str, String);

/// A graph with classes of nodes, and what was seen in it.
struct Found<'a> {
    data: &'a NodeData,
    traits: &'a Traits,
    files: &'a EdgeListFiles,
}

impl Found<'_> {
    /// The experiment.
    fn text(&self, place: &Place) -> Result<String> {
        let (data, traits, files) = (self.data, self.traits, self.files);
        let (width, embedding) = match has_features(files) {
            true => (
                format!("features = {}\n", data.batch.width()),
                String::new(),
            ),
            // Nodes are known by themselves alone.
            false => (
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
        if files.undirected {
            rules += "undirected = true       # every edge goes both ways\n";
        }
        if traits.loops > 0 {
            rules += "self_loops = \"keep\"     # or \"drop\"; the default refuses them\n";
        }
        // An edge that stands in both directions, or a loop, comes twice when every edge is taken
        // both ways.
        if traits.repeated > 0 || (files.undirected && (traits.both_ways || traits.loops > 0)) {
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
         {said}\
         {rules}\
         \n\
         [train]\n\
         epochs = 200\n\
         optimizer = {{ kind = \"adam\", lr = 0.01, weight_decay = 5e-4 }}\n",
            head = head(
                &files.edges,
                &format!("classes of {}", counted(data.split.len(), "node")),
                place
            ),
            edge_weight = if weighted {
                "edge_weight = true      # the edges' weights\n"
            } else {
                ""
            },
            said = said(files, "", place)?,
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
                match has_features(self.files) {
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
        let ways = match (traits.symmetric, self.files.undirected) {
            _ if data.batch.graph().edges() == 0 => {
                "none: every node is judged by its own features alone"
            }
            (true, _) if self.files.is_marked() => "both ways, as the file says",
            (_, false) if self.files.is_marked() => "one way, as the file says",
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

/// Whether nodes have features; without, a network begins with an embedding.
fn has_features(files: &EdgeListFiles) -> bool {
    files.features.is_some() || files.chosen().width() > 0
}

/// The files and what is used of them, as `[data]` says it.
fn said(files: &EdgeListFiles, note: &str, place: &Place) -> Result<String> {
    let mut text = format!("edges = {}{note}\n", quoted(&place.relative(&files.edges)?));
    if let Some(path) = &files.features {
        text += &format!("features = {}\n", quoted(&place.relative(path)?));
    }
    if let Some(path) = &files.labels {
        let path = quoted(&place.relative(path)?);
        text += &format!(
            "labels = {path}       # a class per node; -1 or nothing where it is not known\n"
        );
    }
    text += &chosen_text(&files.numbers, &files.categories);
    if let Some(name) = &files.label {
        let name = quoted(name);
        text += &format!("label = {name}       # a node's class; nothing where it is not known\n");
    }
    Ok(text)
}

/// The attributes of nodes that are features, as `[data]` says them.
fn chosen_text(numbers: &[String], categories: &BTreeMap<String, Vec<String>>) -> String {
    let mut text = String::new();
    if !numbers.is_empty() {
        let names = list(numbers.iter().map(String::as_str));
        text += &format!("numbers = {names}    # attributes of nodes, as they are\n");
    }
    if !categories.is_empty() {
        let each = categories.iter().map(|(name, known)| {
            let known = list(known.iter().map(String::as_str));
            format!("{} = {known}", quoted(name))
        });
        let each: Vec<String> = each.collect();
        text += &format!(
            "categories = {{ {} }}    # a value for each of these texts\n",
            each.join(", ")
        );
    }
    text
}

/// The files, read so that everything is kept, to see what is there.
fn everything(edges: &Path, features: Option<&Path>, labels: Option<&Path>) -> EdgeListFiles {
    EdgeListFiles {
        features: features.map(Path::to_path_buf),
        labels: labels.map(Path::to_path_buf),
        predict: Predict::Nodes,
        self_loops: EdgeRule::Keep,
        duplicates: EdgeRule::Keep,
        ..EdgeListFiles::of_edges(edges)
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
        file = remark(&place.file.display().to_string()),
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
fn links(files: EdgeListFiles, seen: &[Finding], place: &Place) -> Result<Draft> {
    let mut files = files;
    files.predict = Predict::Nodes;
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
    let (width, first) = match has_features(&files) {
        true => (format!("features = {}\n", batch.width()), String::new()),
        false => (
            String::new(),
            format!(
                "\n  {{ kind = \"embedding\", vocabulary = {nodes}, out = 32 }},  # a row to learn \
                 for every node"
            ),
        ),
    };
    let unused = match (weighted, files.is_marked()) {
        (true, false) => "   # the third column is not used",
        (true, true) => "   # the edges' weights are not used",
        _ => "",
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
         {said}\
         {rules}\
         \n\
         [train]\n\
         epochs = 200\n\
         optimizer = {{ kind = \"adam\", lr = 0.01 }}\n",
        head = head(
            &files.edges,
            &format!("links between {}", counted(nodes, "node")),
            place
        ),
        said = said(&files, unused, place)?,
    );
    // As training will read it.
    let (experiment, files) = files_of(&text, place)?;
    let seed = experiment.train.seed;
    LinkTask::new(&experiment.model_as()?, read_unlabelled(&files)?, seed)?;

    let mut findings = vec![(
        "graph",
        format!("{}, {}", counted(nodes, "node"), counted(count, "link")),
    )];
    findings.extend(seen.iter().cloned());
    let (_, notes) = super::data::node_names(&files)?;
    findings.extend(notes.into_iter().map(|note| ("reading", note)));
    findings.push(("predicts", "whether two nodes are linked".to_string()));
    if weighted {
        findings.push(("note", "the edges' weights are not used".to_string()));
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
