//! A folder of graphs: TUDataset's text, or a file for every graph.

use std::path::Path;

use super::marked::Survey;
use super::{Finding, chosen_text, head};
use crate::data::prepare::TaskKind;
use crate::family::draft::{Draft, InitOptions, Place, counted, quoted, some};
use crate::graph::data::{
    GraphFolder, GraphSet, graph_files, is_marked, number, read_folder, read_marked,
    read_tudataset, tudataset_in,
};
use crate::graph::task::{Folds, GraphTask};
use crate::{Error, Result};

/// Whole numbers that are as few and as frequent as this are classes.
const MOST_CLASSES: usize = 20;
const GRAPHS_PER_CLASS: usize = 5;
/// Fewer teach nothing that could be measured.
const FEWEST: usize = 10;

/// Whether a folder holds graphs, and no tables that could be something else: in two folders or more
/// within it, whose names are classes, lists of edges are graphs, too.
pub(super) fn takes(folder: &Path) -> bool {
    if tudataset_in(folder).is_some() {
        return true;
    }
    let Ok(files) = graph_files(folder, None) else {
        return false;
    };
    let mut classes: Vec<_> = files.iter().map(|file| &file.class).collect();
    classes.dedup();
    let sorted = classes.len() > 1 && classes.iter().all(|class| class.is_some());
    let marked = files.iter().any(|file| is_marked(&file.path));
    marked || (sorted && !crate::denoise::holds_images(folder))
}

pub(super) fn draft(options: &InitOptions, place: &Place) -> Result<Draft> {
    for (option, given) in [
        ("--features", options.features.is_some()),
        ("--links", options.links),
        ("--directed", options.directed),
        ("--kan", options.kan),
    ] {
        if given {
            let problem = format!("{} is a folder of graphs", options.data.display());
            return Err(Error::refused(option, problem));
        }
    }
    match tudataset_in(&options.data) {
        Some(name) => tudataset(&options.data, &name, place),
        None => own(options, place),
    }
}

/// The data set in TUDataset's text.
fn tudataset(folder: &Path, name: &str, place: &Place) -> Result<Draft> {
    let set = read_tudataset(folder, name, false)?;
    let said = format!(
        "kind = \"tudataset\"\nname = {}\nfolder = {}\nfolds = {}\n",
        quoted(name),
        quoted(&place.relative(folder)?),
        folds(&set)
    );
    finish(folder, &set, &said, Vec::new(), place)
}

/// A file for every graph.
fn own(options: &InitOptions, place: &Place) -> Result<Draft> {
    let folder = &options.data;
    let mut spec = GraphFolder {
        target: options.target.clone(),
        labels: options.labels.clone(),
        ..GraphFolder::of(folder)
    };
    let mut survey = Survey::default();
    let files = graph_files(folder, spec.labels.as_deref())?;
    for file in files.iter().filter(|file| is_marked(&file.path)) {
        survey.add(&read_marked(&file.path)?);
    }
    let (numbers, categories, findings) = survey.chosen(None);
    (spec.numbers, spec.categories) = (numbers, categories);
    let set = read_folder(&spec, true)?;
    spec.task = options.task.unwrap_or_else(|| task(&set));
    let mut said = format!(
        "kind = \"folder\"\nfolder = {}\n",
        quoted(&place.relative(folder)?)
    );
    if let Some(name) = &spec.target {
        said += &format!("target = {}       # the graphs' attribute\n", quoted(name));
    }
    if let Some(path) = &spec.labels {
        let path = quoted(&place.relative(path)?);
        said += &format!("labels = {path}       # a file's name and what it is\n");
    }
    if spec.task == TaskKind::Regression {
        let [shift, scale] = scaling(&set);
        spec.scaling = Some([shift, scale]);
        said += &format!(
            "task = \"regression\"\n\
             scaling = [{shift:?}, {scale:?}]    # about mean and deviation; figures are in the \
             target's units\n"
        );
    }
    said += &chosen_text(&spec.numbers, &spec.categories);
    let set = read_folder(&spec, true)?;
    said += &format!("folds = {}\n", folds(&set));
    finish(folder, &set, &said, findings, place)
}

/// Whole numbers, few and frequent, are classes, and so is text.
fn task(set: &GraphSet) -> TaskKind {
    let classes = set.class_names.len();
    let numbers: Option<Vec<f64>> = set.class_names.iter().map(|name| number(name)).collect();
    let whole = numbers.is_none_or(|numbers| numbers.iter().all(|n| n.fract() == 0.0));
    let few = classes <= MOST_CLASSES && classes * GRAPHS_PER_CLASS <= set.graphs.len();
    let text = set.class_names.iter().any(|name| number(name).is_none());
    match text || (whole && few) {
        true => TaskKind::Classification,
        false => TaskKind::Regression,
    }
}

/// Mean and deviation, to two digits.
fn scaling(set: &GraphSet) -> [f32; 2] {
    let values: Vec<f64> = set
        .classes
        .iter()
        .filter_map(|&c| number(&set.class_names[c as usize]))
        .collect();
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
    let short = |v: f64| format!("{v:.1e}").parse::<f32>().unwrap_or(0.0);
    match short(variance.sqrt()) {
        scale if scale.is_normal() => [short(mean), scale],
        _ => [short(mean), 1.0],
    }
}

/// Ten, or fewer where a class has fewer graphs, or where numbers of ten graphs each would be fewer:
/// R² of two or three says nothing.
fn folds(set: &GraphSet) -> usize {
    if !set.targets.is_empty() {
        return (set.graphs.len() / 10).clamp(3, 10);
    }
    let count = |class: u32| set.classes.iter().filter(|&&c| c == class).count();
    let rarest = (0..set.class_names.len() as u32).map(count).min();
    rarest.unwrap_or(0).clamp(3, 10)
}

fn finish(
    folder: &Path,
    set: &GraphSet,
    said: &str,
    seen: Vec<Finding>,
    place: &Place,
) -> Result<Draft> {
    let graphs = set.graphs.len();
    if graphs < FEWEST {
        let needed = format!("at least {FEWEST} to train and measure on");
        let what = folder.display().to_string();
        return Err(Error::invalid(what, counted(graphs, "graph"), needed));
    }
    if set.targets.is_empty() && set.class_names.len() < 2 {
        return Err(Error::invalid(
            folder.display().to_string(),
            counted(set.class_names.len(), "class"),
            "at least 2 to tell apart: folders named by them, --target ATTRIBUTE or --labels FILE",
        ));
    }
    let (outputs, predicts) = match set.targets.is_empty() {
        true => {
            let names = some(set.class_names.iter().map(String::as_str));
            let classes = set.class_names.len();
            (
                classes,
                format!("the class of a graph, one of {classes} ({names})"),
            )
        }
        false => (1, "a number of a graph".to_string()),
    };
    let width = set.graphs[0].width();
    let text = format!(
        "{head}\
         features = {width}\n\
         # Three rounds of sums over neighbours, then the mean over a graph's nodes.\n\
         layers = [\n  \
           {{ kind = \"gin\", out = 32 }},\n  \
           {{ kind = \"relu\" }},\n  \
           {{ kind = \"layer_norm\" }},\n  \
           {{ kind = \"gin\", out = 32 }},\n  \
           {{ kind = \"relu\" }},\n  \
           {{ kind = \"layer_norm\" }},\n  \
           {{ kind = \"gin\", out = 32 }},\n  \
           {{ kind = \"relu\" }},\n  \
           {{ kind = \"mean_pool\" }},\n  \
           {{ kind = \"dropout\", p = 0.2 }},\n  \
           {{ kind = \"dense\", out = {outputs} }},\n\
         ]\n\
         \n\
         [data]\n\
         # Every fold is tested on once, by a network that the next one has validated and the others\n\
         # have taught.\n\
         {said}\
         \n\
         [train]\n\
         epochs = 100\n\
         batch = 32\n\
         optimizer = {{ kind = \"adam\", lr = 0.003 }}\n",
        head = head(
            folder,
            &format!("{predicts}, {}", counted(graphs, "graph")),
            place
        ),
    );
    // As training will read it.
    let experiment = place.experiment(&text)?;
    let next = Folds::next_validates(0, folds(set));
    GraphTask::new(&experiment.model_as()?, set.clone(), next, 32, 0, None)?;
    let nodes: usize = set.graphs.iter().map(|g| g.graph().nodes()).sum();
    let mut findings = vec![
        (
            "graphs",
            format!(
                "{}, {} nodes on average, {}",
                counted(graphs, "graph"),
                nodes / graphs,
                counted(width, "number") + " a node"
            ),
        ),
        ("predicts", predicts),
    ];
    findings.extend(seen);
    Ok(Draft {
        text,
        findings,
        inputs: place.relative(folder)?,
    })
}
